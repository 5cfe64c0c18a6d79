"""What makes a model fast on a CPU."""
