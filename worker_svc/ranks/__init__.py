"""A worker of several ranks: processes that each have a part of one model (docs/design.md, RK)."""
