"""The streams of workers, relays and frontends, and the messages on them."""
