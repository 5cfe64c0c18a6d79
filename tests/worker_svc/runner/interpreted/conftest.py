"""Tests of Triton's kernels in its interpreter, which has to be chosen before Triton is imported.

`test_triton_interpreted.py` runs them in a process of their own; in any other process they are not collected.
"""

from __future__ import annotations

import os

collect_ignore_glob = [] if os.environ.get("TRITON_INTERPRET") == "1" else ["test_*.py"]
