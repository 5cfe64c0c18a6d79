"""The scheduler's state and its decisions: no clock, no I/O, no gRPC. Times come in as arguments, in seconds."""
