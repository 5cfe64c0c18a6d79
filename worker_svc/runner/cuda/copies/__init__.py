"""Blocks and recurrent states of a device, copied to the host and back, among the steps and beside them (TR12)."""
