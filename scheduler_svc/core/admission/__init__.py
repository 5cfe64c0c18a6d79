"""Which requests may wait, and which classes are held back."""
