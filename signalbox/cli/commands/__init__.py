"""One file per command: EXAMPLE, add_arguments(parser), run(args) -> exit status."""
