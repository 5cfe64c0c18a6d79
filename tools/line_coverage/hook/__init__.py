"""What interpreters of a measured command import first: only this folder is on their path."""
