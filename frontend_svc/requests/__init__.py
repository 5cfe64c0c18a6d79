"""A request inside the frontend: checked, open, and ended by exactly one terminal event."""
