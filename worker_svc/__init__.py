"""The worker: owns its requests, runs the model, sends tokens straight to frontends."""
