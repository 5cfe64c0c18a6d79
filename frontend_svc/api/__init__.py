"""The public faces of the frontend: what clients call, each in its own protocol."""
