"""Runs, before a worker on a GPU says that it is ready, what its steps will need compiled."""
