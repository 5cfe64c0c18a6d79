"""The worker's state and its rules: no clock, no I/O, no gRPC, no torch."""
