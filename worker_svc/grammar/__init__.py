"""Grammars as automata over the model's vocabulary, compiled beside the steps."""
