"""Limits of keys, lent to frontends (KB1 to KB8)."""
