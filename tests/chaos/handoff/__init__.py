"""Requests that are handed over while they stream, by hand, by drains and by ends of workers (HO): what is lost or
changed, how long streams pause, and what is computed twice."""
