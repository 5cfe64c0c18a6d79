"""The runner alone, against the memory floor and against transformers."""
