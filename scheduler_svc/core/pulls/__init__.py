"""Pulls of cached blocks: a worker reads from another one what it would have to compute (PB)."""
