"""What frontend, scheduler and worker need to run and to speak with each other."""

__version__ = "0.1.0"
