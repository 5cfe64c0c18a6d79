"""Counts of a checkout that may only fall, with their budgets (CONTRIBUTING.md), and further figures."""
