"""The one way back after any broken link: a worker's snapshot is the truth."""
