"""Forms that an output can be made to follow: what they are, how the grammar library is asked, how they are vetted."""
