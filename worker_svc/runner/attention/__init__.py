"""Attention on the paged KV cache: how a model reaches it, and the reference in plain torch."""
