"""The board of a scheduler as plain values."""
