"""The frame of a service process: settings, logging, signals."""
