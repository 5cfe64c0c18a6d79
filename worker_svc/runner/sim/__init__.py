"""The simulated model: no network, no text, but a real KV cache."""
