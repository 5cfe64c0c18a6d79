"""Who of several schedulers leads: whoever holds the lease (docs/liveness.md, B1 to B3)."""
