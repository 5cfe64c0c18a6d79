"""The command line: `signalbox COMMAND`."""
