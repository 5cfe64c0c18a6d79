"""The requests placed on one worker, as columns indexed by slot."""
