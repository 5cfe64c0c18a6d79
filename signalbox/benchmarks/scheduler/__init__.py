"""What the scheduler costs, without a network or at scale."""
