"""How long steps of the runner take, without services."""
