"""Who is at the other end of a link, by certificates."""
