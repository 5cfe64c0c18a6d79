"""What a ring of our own reaches on this machine."""
