"""Deterministic simulation of the ring: both cores, the real messages, and a model of the frontend."""
