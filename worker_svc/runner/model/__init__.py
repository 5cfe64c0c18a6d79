"""A model from its directory to a proved forward on the paged KV cache."""
