"""Requests that go from one worker to another: cores, engines and control streams without a scheduler."""
