"""Quality of service in simulated time."""
