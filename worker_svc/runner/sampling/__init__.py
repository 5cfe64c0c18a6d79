"""The next token of every sample, from its own logits, parameters and random numbers."""
