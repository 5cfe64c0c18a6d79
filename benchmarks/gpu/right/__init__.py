"""Whether outputs are right: tiny models in float32, against transformers."""
