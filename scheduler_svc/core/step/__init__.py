"""One step of one worker: who goes on, who starts, who gives way, and what became of it."""
