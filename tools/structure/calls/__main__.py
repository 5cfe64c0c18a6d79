"""Prints the counts of calls as one JSON object: `python -m tools.structure.calls`, with PYTHONHASHSEED=0."""

from __future__ import annotations

import json

from tools.structure.calls.measure import call_counts

print(json.dumps(call_counts()))
