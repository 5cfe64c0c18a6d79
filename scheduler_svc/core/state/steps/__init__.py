"""A step: decision, record, report, its time limit, and the groups of copies that run beside it."""
