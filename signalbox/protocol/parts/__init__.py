"""What a step orders of each part of a worker: records, codec and validation, for scheduler and worker alike (PT6)."""
