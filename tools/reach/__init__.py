"""Which tests a change can reach (`make test` selects by it), from a graph of the files of a checkout.

    python -m tools.reach                      # what the change of this checkout reaches
    python -m tools.reach FILE ...             # how much a change of each of these files alone reaches
    python -m tools.reach --history 30         # whether the tests of past fixes are reached by their product diffs

The graph is read from the sources; nothing is imported. The rules that it follows are tables in rules.py.
"""
