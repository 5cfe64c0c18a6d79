"""A worker without a scheduler goes on by itself (docs/liveness.md, A1 to A6)."""
