"""Fake trees of /sys and /proc, and what is made of them."""
