"""Readers of calls, one for each way in which models write them."""
