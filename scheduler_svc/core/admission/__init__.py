"""Which requests may wait, which worker takes them, and which classes are held back."""
