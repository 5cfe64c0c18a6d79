"""Disk tier: which blocks a worker has on disk, which are loaded, and which are stored (docs/design.md, DT)."""
