"""Who of several schedulers leads (docs/liveness.md, B1 to B3)."""
