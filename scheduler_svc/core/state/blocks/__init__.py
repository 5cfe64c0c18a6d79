"""Blocks of the KV cache on a device and in its host tier: pools, contents, copies, loans."""
