"""The frontend's streams to the scheduler and to the workers."""
