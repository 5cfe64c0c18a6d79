"""What a worker holds of its requests: columns indexed by slot. This is the authority."""
