"""What a process finds where it is started: import path, streams, directories of the user, limits."""
