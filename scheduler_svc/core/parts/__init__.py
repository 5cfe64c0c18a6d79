"""Optional features of a worker, one folder each: state, rules and orders of each feature."""
