"""gRPC streams between services: channels, heartbeats, what ended them, whom to dial."""
