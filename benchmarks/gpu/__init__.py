"""One command for a machine with a GPU: whether outputs are right, then how fast steps and the ring are."""
