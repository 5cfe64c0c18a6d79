"""Checkpoints of recurrent states, as a part of a worker (docs/design.md, CK)."""
