"""A request: identity, counts, its place in the queues, notices about it, hand-off under way."""
