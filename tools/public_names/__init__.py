"""The public names of the product: what users, operators and other programs write or read by name."""
