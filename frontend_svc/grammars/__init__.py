"""Grammars of outputs in the language of a model: a form behind reasoning, calls of tools amid free text."""
