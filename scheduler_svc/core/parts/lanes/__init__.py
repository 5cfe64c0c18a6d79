"""Lanes: decode rows that take turns in steps (docs/design.md, LA)."""
