"""Counts Python calls of steady steps and of one token on its way out."""
