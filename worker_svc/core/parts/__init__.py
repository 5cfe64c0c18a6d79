"""Parts of a worker: what is done with the orders of steps for optional features (PT7)."""
