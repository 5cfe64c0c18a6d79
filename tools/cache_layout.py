"""How many blocks a worker makes of some memory, in one group and in groups: `python -m tools.cache_layout`.

Prints what `signalbox bench plan` is to be told, for a model of so many layers that see all, and so many with a window.
"""

from __future__ import annotations

import argparse

from pydantic import ByteSize, TypeAdapter

from signalbox.protocol.enums import BlockGroupKind
from worker_svc.runner.attention.kv_cache import LayerShape
from worker_svc.runner.attention.layer_groups import Need, within_bytes

BLOCK_SIZE = 16
BFLOAT16_BYTES = 2


def main() -> None:
    """Prints two lines of arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--full", type=int, default=1, help="layers that see all positions")
    add("--windowed", type=int, default=5, help="layers with a window")
    add("--reach", type=int, default=512, help="positions of the window")
    add("--elements", type=int, default=512, help="of keys, and as many of values, per position and layer")
    add("--memory", default="1GiB", help="of the cache")
    add("--mean-tokens", type=int, default=10_240, help="mean length of a request")
    add("--step-tokens", type=int, default=2048, help="most prompt tokens of a step")
    args = parser.parse_args()
    sees = int(BlockGroupKind.WINDOW), args.reach
    shape = LayerShape(1, args.elements, args.elements)
    windowed = LayerShape(1, args.elements, args.elements, sees=sees)
    shapes = [*[shape] * args.full, *[windowed] * args.windowed]
    num_bytes = TypeAdapter(ByteSize).validate_python(args.memory)
    need = Need(BLOCK_SIZE, args.mean_tokens, args.step_tokens, 1 << 17)
    block_bytes = len(shapes) * shape.elements * BLOCK_SIZE * BFLOAT16_BYTES
    print(f"one group: --blocks {num_bytes // block_bytes}")
    layout = within_bytes(shapes, num_bytes, need, BFLOAT16_BYTES)
    if layout is None or not layout.groups:
        print("groups: there is nothing to gain")
        return
    groups = " ".join(f"--group {group.reach}:{group.num_blocks}" for group in layout.groups)
    print(f"groups: --blocks {layout.num_blocks} {groups}")


if __name__ == "__main__":
    main()
