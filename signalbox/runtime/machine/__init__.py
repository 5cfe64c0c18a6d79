"""The processors of this machine: which of them we may use, and what a model gets of them."""
