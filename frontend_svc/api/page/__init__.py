"""The page at /: a playground and the board."""
