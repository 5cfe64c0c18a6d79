"""The frontend: public gRPC and OpenAI-compatible HTTP in front of scheduler and workers. No torch."""
