"""Parsers of outputs against generated ones, of which it is known what must come."""
