"""Deterministic simulations, in which one seed decides everything.

`ring/` is the truth about a whole ring: the real shells of all services, started by their own `serve`, on a virtual
clock and a virtual network, with random faults of processes, paths, clocks and models (test_ring.py, test_mutations.py,
`python -m tests.simulation.run`).

The files beside it drive the two cores and their messages with light stand-ins for the shells (world.py, *_node.py):
for named scenarios that set one message against another, and for broad checks of the cores alone. They claim nothing
about links, sessions or graces.
"""
