"""The OpenAI-compatible API, and what vLLM adds to it."""
