"""Requests that go from one worker to another (docs/design.md, HO): who may, what each end is told, how it ends."""
