"""Models by name: fetched, kept, judged."""
