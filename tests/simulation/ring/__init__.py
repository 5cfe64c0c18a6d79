"""A ring of real shells on a virtual clock and a virtual network: one seed decides everything (see `ring.py`)."""
