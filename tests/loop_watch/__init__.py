"""Finds callbacks that keep an event loop of a service from everything else for too long.

A service that is started by the tests with `FILE` in its environment writes a line to that file when its loop begins,
and one for each callback that took more of its thread's processor time than `LIMIT_S`: heartbeats are 0.25 s apart, so
a loop that is held for half of that on a machine that has nothing else to do is late on one that has.

`python -m tests.loop_watch` tries the extremes on rings of their own; `test_watch.py` a cheap share of them."""
