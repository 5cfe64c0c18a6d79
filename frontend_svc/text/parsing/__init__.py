"""What an output means: its pieces are read into text, reasoning and calls of tools, in each family's own language."""
