"""Conversations to prompts: a model's chat templates, what they can do, and the bounds within which they run."""
