"""The scheduler: decides which blocks and which steps, and never sees a token."""
