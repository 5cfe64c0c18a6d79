"""What is used to make and to try signalbox, and is no part of it."""
