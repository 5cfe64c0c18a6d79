"""Commands that ask a service that runs."""
