"""Decisions and notices as messages, and messages of workers and frontends as values of the core."""
