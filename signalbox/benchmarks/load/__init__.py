"""Load benches: what a client sees of a server, and what a ring of our own reaches on this machine."""
