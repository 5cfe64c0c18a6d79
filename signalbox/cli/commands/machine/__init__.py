"""Commands for the machine that they run on: its rings, its models, its keys."""
