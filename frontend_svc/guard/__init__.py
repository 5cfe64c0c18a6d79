"""What keeps the process alive among strangers, whatever they do at its public ports."""
