"""A ring on this machine: its processes are started, proved, watched and stopped."""
