"""Decoders: what the tensors of a quantised checkpoint are, one file for each way to store them."""
