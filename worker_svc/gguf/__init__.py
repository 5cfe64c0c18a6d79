"""Weights in GGUF, made into a model directory once."""
