"""`python -m signalbox.grammar.vetter`: the process that tries forms out, so that a hostile one kills nothing else.

Reads one form per line and writes one verdict per line (`signalbox.grammar.vetting` is the other end). It is killed by
the kernel when a form takes too long; it ends when its input does.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import sys
import threading
from functools import lru_cache
from pathlib import Path

from llguidance import LLMatcher, LLTokenizer

from signalbox.grammar.compilation import compile_grammar, is_dead_end, limit_of, load_tokenizer, reason_of
from signalbox.grammar.form import Form, FormError
from signalbox.grammar.limits import FormLimits
from signalbox.grammar.search import bits_of, is_contradiction, tokens_of
from signalbox.grammar.token_rules import NO_RULES, TokenRules
from signalbox.grammar.translation import to_grammar

STACK_BYTES = 1 << 20
"""Less than any thread has that compiles what was vetted: too deep a recursion ends this process, and no other."""
MAX_MEMORY_BYTES = 2 << 30
"""Most address space of the process, in bytes."""
NICENESS = 5
"""Whoever runs already goes first on a busy machine: one request waits for its verdict, all others for their tokens."""
NUM_WALKS = 4
WALK_TOKENS = 16
"""How often, and how far into the grammar, masks are tried."""


def main() -> None:
    """Answers until the input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("--vocab-size", type=int)
    parser.add_argument("--eos", type=int, nargs="*", default=[])
    parser.add_argument("--cpu-s", type=float, required=True)
    parser.add_argument("--wall-s", type=float, required=True)
    parser.add_argument("--limits", type=read_limits, required=True)
    args = parser.parse_args()
    os.nice(NICENESS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever started us
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    tokenizer = load_tokenizer(args.tokenizer, args.vocab_size, args.eos)
    threading.stack_size(STACK_BYTES)
    for line in sys.stdin.buffer:
        # Nobody handles these signals, so they end the process, whatever native code it is in.
        signal.setitimer(signal.ITIMER_PROF, args.cpu_s)
        signal.setitimer(signal.ITIMER_REAL, args.wall_s)
        form, rules = line.split(b"\t")
        question = Form.from_json(form), TokenRules.from_json(rules)
        verdict = vet_with_small_stack(*question, tokenizer, args.limits)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.stdout.write(json.dumps(verdict) + "\n")
        sys.stdout.flush()


def read_limits(text: str) -> FormLimits:
    """The limits in the order of `FormLimits`, with commas."""
    return FormLimits(*map(int, text.split(",")))


def vet_with_small_stack(
    form: Form, rules: TokenRules, tokenizer: LLTokenizer, limits: FormLimits
) -> dict[str, str]:
    """The verdict: `grammar`, or `error`."""
    verdict: dict[str, str] = {}

    def run() -> None:
        try:
            verdict["grammar"] = vet(form, tokenizer, limits, rules)
        except FormError as error:
            verdict["error"] = str(error)
        except Exception as error:  # whatever the library raises is about the form
            verdict["error"] = f"cannot be followed: {type(error).__name__}: {error}"

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return verdict


def vet(form: Form, tokenizer: LLTokenizer, limits: FormLimits, rules: TokenRules = NO_RULES) -> str:
    """The grammar of `form` once it has been compiled and tried. Raises FormError."""
    grammar = to_grammar(form, tokenizer)
    matcher = compile_grammar(tokenizer, grammar, limits)
    numbers = random.Random(0)  # the same verdict every time
    for number in range(2 * NUM_WALKS):
        walk(matcher, numbers, limits, tokenizer if number % 2 else None)
        matcher.reset()
    if rules and is_contradiction(matcher, rules):
        raise FormError("cannot be followed: every output comes to a place where no token is allowed")
    return grammar


def walk(
    matcher: LLMatcher, numbers: random.Random, limits: FormLimits, tokenizer: LLTokenizer | None = None
) -> None:
    """Takes allowed tokens at random: a grammar that explodes mostly does so early. tokenizer: takes tokens of one byte
    where there are, which is where a grammar turns: most tokens go on within a string."""
    output: list[int] = []
    for place in range(WALK_TOKENS):
        mask = int.from_bytes(matcher.compute_bitmask(), "little")
        if not mask or is_dead_end(matcher):
            raise _dead_end(output, tokenizer)
        if matcher.is_error():
            raise _failure(matcher, limits, place)
        token = pick(mask, numbers) if tokenizer is None else pick_byte(mask, numbers, tokenizer)
        if not matcher.consume_token(token):
            raise _failure(matcher, limits, place)
        output.append(token)
        if matcher.is_stopped():
            return


def _dead_end(output: list[int], tokenizer: LLTokenizer | None) -> FormError:
    if not output:
        return FormError("cannot be followed: no output satisfies it")
    told = "" if tokenizer is None else f" after {tokenizer.decode_str(output)[-40:]!r}"
    return FormError(
        f"cannot be followed: it leads where no output satisfies it, token {len(output) + 1}{told}"
    )


def _failure(matcher: LLMatcher, limits: FormLimits, num_tokens: int) -> FormError:
    limit = limit_of(matcher, limits)
    if limit:
        return FormError(f"asks for too much work at its token {num_tokens + 1}: more than {limit}")
    return FormError(f"cannot be followed: {reason_of(matcher)}")


def pick(mask: int, numbers: random.Random) -> int:
    """The number of a random bit that is set."""
    rotation = numbers.randrange(mask.bit_length())
    high = mask >> rotation
    if high:
        return rotation + (high & -high).bit_length() - 1
    return (mask & -mask).bit_length() - 1


def pick_byte(mask: int, numbers: random.Random, tokenizer: LLTokenizer) -> int:
    """The number of a random bit that is set, of a token of one byte where there is one."""
    short = list(tokens_of(mask & _bytes_of(tokenizer)))
    return numbers.choice(short) if short else pick(mask, numbers)


@lru_cache(maxsize=1)
def _bytes_of(tokenizer: LLTokenizer) -> int:
    """The tokens of one byte, as a mask."""
    tokens = range(tokenizer.vocab_size)
    return bits_of([token for token in tokens if len(tokenizer.decode_bytes([token])) == 1])


if __name__ == "__main__":
    main()
