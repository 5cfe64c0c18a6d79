"""A tiny process beside the worker that sees it end, and tells the schedulers how (docs/liveness.md, E2)."""
