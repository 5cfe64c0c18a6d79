"""The runner for a GPU: state on the device, decode steps as graphs."""
