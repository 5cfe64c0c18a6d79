"""The open sessions of a frontend: what each holds, tells its client, and how it ends."""
