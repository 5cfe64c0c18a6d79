"""Groups of blocks other than the spine: sliding windows and checkpoints of recurrent states."""
