"""How the setting for speculative decoding is written: a method and the most drafts per request and step."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_DRAFTS = {"ngram": 8, "draft": 4}
"""Drafts per step where none are named, by method. ngram looks the last tokens up in prompt and output, draft asks a
smaller model."""
MOST_DRAFTS = 32


@dataclass(frozen=True)
class Speculation:
    """How to speculate: a method, and how many drafts a request gets at most."""

    method: str
    num_drafts: int
    """Most draft tokens per request and step; how many are made follows what is accepted."""


def parse_speculation(text: str) -> Speculation:
    """`ngram`, `ngram:8`, `draft` or `draft:4`. ValueError with a sentence's end for anything else."""
    method, colon, count = text.partition(":")
    if method not in DEFAULT_DRAFTS:
        raise ValueError(f"{text!r} is not ngram, draft, or one of them with a number, like ngram:8")
    if not colon:
        return Speculation(method, DEFAULT_DRAFTS[method])
    if not (count.isdecimal() and 1 <= int(count) <= MOST_DRAFTS):
        raise ValueError(f"{text!r} does not name 1 to {MOST_DRAFTS} drafts behind the colon")
    return Speculation(method, int(count))
