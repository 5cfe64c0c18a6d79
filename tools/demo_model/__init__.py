"""Training of the model that signalbox ships."""
