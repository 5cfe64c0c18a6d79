"""The KV blocks of one worker: who holds them, what they contain, which goes next."""
