"""Requests that go from one worker to another (docs/design.md, HO): what each end of a hand-off knows of it."""
