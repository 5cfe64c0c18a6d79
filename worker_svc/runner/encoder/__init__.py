"""Encoders: models that read a prompt both ways, at once and without a KV cache."""
