"""Traces and metrics: names, spans, and how they leave the process."""
