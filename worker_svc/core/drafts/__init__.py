"""Drafts of a worker's decode rows: where they come from, and how many pay."""
