"""Mixtures of experts on the CPU: packed, and routed in one call."""
