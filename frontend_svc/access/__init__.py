"""Who may call, and how much: keys and their limits."""
