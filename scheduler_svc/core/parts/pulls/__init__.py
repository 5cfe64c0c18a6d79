"""Pulls: cached blocks that one worker reads from another (docs/design.md, PB)."""
