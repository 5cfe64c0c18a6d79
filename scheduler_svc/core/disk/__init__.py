"""The disk tier behind the host tier: what a worker has on disk, what is loaded, and what is stored (DT)."""
