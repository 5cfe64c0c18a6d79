"""Stages of tests, which do what stages should not."""
