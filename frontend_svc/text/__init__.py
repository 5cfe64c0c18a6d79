"""Text to tokens and tokens to text: templates, tokenizers, stop strings, calls of tools."""
