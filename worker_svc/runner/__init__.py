"""Runs batches: the torch runner and the simulated one."""
