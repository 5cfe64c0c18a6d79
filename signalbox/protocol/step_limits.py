"""Times of steps that the scheduler and its workers agree on (docs/design.md, U6 and U7)."""

STEP_TIMEOUT_S = 120.0
"""The longest that any step may take, where a worker does not say it."""
COMPILE_S = 120.0
"""What a step may take that has a kernel compiled, or a graph captured."""
