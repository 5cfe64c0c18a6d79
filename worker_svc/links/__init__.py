"""The worker's streams: to the scheduler and to the frontends."""
