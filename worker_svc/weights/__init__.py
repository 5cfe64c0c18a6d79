"""Weights as checkpoints keep them: what a file says of a tensor, and what the tensor then is."""
