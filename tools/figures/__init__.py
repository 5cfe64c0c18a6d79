"""The figures of README.md and of the first tables of docs/performance.md, from docs/data."""
