"""Layers with a recurrent state: delta nets, state spaces, short convolutions (design SG)."""
