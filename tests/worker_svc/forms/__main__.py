"""`python -m tests.worker_svc.forms --cases 10000`: random pairs of forms and fields, and how each ended."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections import Counter
from pathlib import Path

from tests.worker_svc.forms.bench import NUM_SLOTS, Bench, Ended, make_model
from tests.worker_svc.forms.pairs import Pairs
from tests.worker_svc.forms.verdict import kind_of, wrong


def main() -> None:
    """Exit status 1 where a pair ended as it must not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first pair")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(make_model(Path(folder)))
        drafting = Bench(make_model(Path(folder)), with_drafts=True)
        kinds, faults = Counter[str](), 0
        numbers = range(args.first, args.first + args.cases)
        pairs = Pairs(bench.tokenizer)
        with asyncio.Runner() as runner:
            for turn, first in enumerate(range(0, len(numbers), NUM_SLOTS)):
                some = [pairs.make(number) for number in numbers[first : first + NUM_SLOTS]]
                for ended in runner.run((drafting if turn % 2 else bench).serve(some)):
                    kinds[kind_of(ended)] += 1
                    faults += tell(ended, bench)
        for each in (bench, drafting):
            each.close()
    for kind, count in kinds.most_common():
        print(f"{count:6d} {kind}")
    print(f"{faults} of {args.cases} pairs ended as they must not")
    raise SystemExit(faults > 0)


def tell(ended: Ended, bench: Bench) -> bool:
    """Prints what is wrong with an end; false: nothing is."""
    sentence = wrong(ended, bench)
    if sentence:
        pair = ended.pair
        fields = {name: value for name, value in pair.told.items() if name != "allowed_token_ids"}
        allowed = pair.told.get("allowed_token_ids", ())
        print(f"{pair.number}: {sentence}\n  {pair.form.form} {pair.form.text[:300]} {pair.form.choices}")
        print(
            f"  {fields} allowed {len(allowed)} {allowed[:20]} reasoning {pair.is_behind_reasoning} {pair.budget}"
        )
    return bool(sentence)


if __name__ == "__main__":
    main()
