"""What a worker has done, counted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class WorkerStats:
    """Counters since the worker attached."""

    num_steps: int = 0
    num_preemptions: int = 0
    num_displacements: int = 0
    num_output_tokens: int = 0
    num_prefill_tokens: int = 0
    num_prefix_query_tokens: int = 0
    num_prefix_hit_tokens: int = 0
    """Prompt tokens found in the prefix cache, host tier included."""
    num_host_hit_tokens: int = 0
    num_disk_hit_tokens: int = 0
    """Prompt tokens of blocks that were loaded from disk."""
    num_disk_loaded_blocks: int = 0
    num_disk_lost_blocks: int = 0
    """Loads that did not arrive: what they should have brought was computed."""
    num_disk_stored_blocks: int = 0
    """Blocks that were ordered to be stored."""
    num_block_copies: int = 0
    """Block copies, those beside the steps included."""
    num_fences: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    execute_us: int = 0
    num_reported: int = 0
    """Steps that have been reported."""
    step_us: int = 0
    """Microseconds that all reported steps took on the worker, queueing apart."""
