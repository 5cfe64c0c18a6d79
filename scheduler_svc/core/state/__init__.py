"""State of requests, of steps and of each worker. Rules that decide about it are in the layers after this one."""
