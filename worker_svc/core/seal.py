"""Names the blocks whose KV is written."""

from __future__ import annotations

from signalbox.protocol.hash_chain import block_hash
from worker_svc.core.requests.request_state import RequestTable
from worker_svc.core.step import I32, StepReport


def seal_blocks(table: RequestTable, slots: I32, report: StepReport) -> None:
    """Hashes the blocks of `slots` that are full now, into table and report. The last token of a sequence has no KV
    yet."""
    size = table.block_size
    for slot in slots[(table.next_seal[slots] + 1) * size <= table.num_tokens[slots] - 1].tolist():
        while table.chain[slot] and (table.next_seal[slot] + 1) * size <= table.num_tokens[slot] - 1:
            index = int(table.next_seal[slot])
            content = table.tokens[slot, index * size : (index + 1) * size].astype("<i4", copy=False)
            table.chain[slot] = block_hash(table.chain[slot], content.tobytes())
            table.sealed[slot].append(table.chain[slot])
            table.next_seal[slot] += 1
            report.sealed_slots.append(slot)
            report.sealed_indexes.append(index)
            report.sealed_hashes.append(table.chain[slot])
