"""What is asked of a prompt itself: its vector, its labels, how well two texts fit."""
