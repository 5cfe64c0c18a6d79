"""Hand-off: requests that go from one worker to another (docs/design.md, HO)."""
