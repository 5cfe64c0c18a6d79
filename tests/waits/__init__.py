"""Every wait of the services stands in docs/design/waits.md."""
