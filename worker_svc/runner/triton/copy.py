"""A Triton kernel that copies rows of many tensors between a device and pinned memory of the host, in one launch."""

# ruff: noqa: N803

from __future__ import annotations

import torch
import triton
import triton.language as tl

SPAN = 1024
"""Words that a program copies at once."""
MOST_PROGRAMS = 32
"""Programs of a launch: few, for steps run meanwhile, and the bus to the host is slower than they are. Not measured."""


@triton.jit(do_not_specialize=["num_copies", "num_tensors"])  # type: ignore[untyped-decorator]
def copy_kernel(  # type: ignore[no-untyped-def]
    addresses, row_words, copies, num_copies, num_tensors, WORD: tl.constexpr, SPAN: tl.constexpr
):
    """Grid: (programs,). Each takes every so many-th pair of a copy and a tensor."""
    pairs = num_copies.to(tl.int64) * num_tensors
    for pair in range(tl.program_id(0).to(tl.int64), pairs, tl.num_programs(0)):
        copy, tensor = copies + pair // num_tensors * 4, pair % num_tensors
        words = tl.load(row_words + tensor)
        of = tl.load(addresses + tl.load(copy) * num_tensors + tensor) + tl.load(copy + 1) * words * WORD
        to = tl.load(addresses + tl.load(copy + 2) * num_tensors + tensor) + tl.load(copy + 3) * words * WORD
        if WORD == 8:
            word = tl.int64
        elif WORD == 4:
            word = tl.int32
        elif WORD == 2:
            word = tl.int16
        else:
            word = tl.int8
        source, target = of.to(tl.pointer_type(word)), to.to(tl.pointer_type(word))
        for start in range(0, words, SPAN):
            at = start + tl.arange(0, SPAN)
            tl.store(target + at, tl.load(source + at, mask=at < words), mask=at < words)


def copy_rows(addresses: torch.Tensor, row_words: torch.Tensor, word: int, copies: torch.Tensor) -> None:
    """Copies rows of all tensors. No row is written that another of the copies reads or writes.

    All are int64 on the device. addresses: `[places, tensors]` of the first row of each tensor in each place, memory of
    the device or pinned. row_words: `[tensors]` words of a row, of `word` bytes each. copies: `[N, 4]` place and row
    that are read, place and row that are written.
    """
    num_copies, num_tensors = len(copies), len(row_words)
    num_programs = max(1, min(MOST_PROGRAMS, num_copies * num_tensors))
    copy_kernel[(num_programs,)](
        addresses, row_words, copies, num_copies, num_tensors, WORD=word, SPAN=SPAN, num_warps=4
    )
