"""Anthropic's Messages API, as its SDK and Claude Code speak it."""
