"""Which workers are suspect, which are gone, and where their requests go (docs/liveness.md)."""
