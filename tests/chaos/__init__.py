"""Faults for real rings under real clients: what is lost, doubled or changed, and how long streams pause.

`python -m tests.chaos --list` names the faults; docs/reliability.md says what they show.
"""
