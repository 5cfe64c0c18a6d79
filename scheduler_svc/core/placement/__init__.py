"""Which worker takes which waiting request, at a cost that does not grow with the ring (Q4, Q9)."""
