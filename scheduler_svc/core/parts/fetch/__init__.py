"""Blocks that come from another tier beside the steps: copy groups, fences, longer prefixes."""
