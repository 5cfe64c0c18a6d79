"""Runs an overlay on one machine as its manifests say."""
