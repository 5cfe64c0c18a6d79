"""A model's weights divided among the ranks of a group: tensor parallelism (docs/design.md, RK)."""
