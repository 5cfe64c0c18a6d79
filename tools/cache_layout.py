"""How many blocks a worker makes of some memory, in one group and in groups: `python -m tools.cache_layout`.

Prints what `signalbox bench plan` is to be told, for a model of so many layers that see all, and so many with a window.
With `--recurrent`, for a hybrid: how many requests of one length it holds, against a model whose layers all attend.
"""

from __future__ import annotations

import argparse

from pydantic import ByteSize, TypeAdapter

from signalbox.protocol.enums import BlockGroupKind
from worker_svc.runner.attention.kv_cache import LayerShape
from worker_svc.runner.attention.layer_groups import Need, within_bytes

BLOCK_SIZE = 16
BFLOAT16_BYTES = 2
STATES_PER_REQUEST = 4
"""Two versions, the last boundary's, and a checkpoint."""


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
    add(
        "--recurrent",
        type=int,
        default=0,
        help="layers with a recurrent state, instead of those with a window",
    )
    add("--state-bytes", type=int, default=1 << 20, help="that each of them keeps of a sequence")
    args = parser.parse_args()
    if args.recurrent:
        print_hybrid(args)
        return
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


def print_hybrid(args: argparse.Namespace) -> None:
    """Requests of the mean length that fit, with the memory of each."""
    num_bytes = TypeAdapter(ByteSize).validate_python(args.memory)
    of_layer = args.mean_tokens * 2 * args.elements * BFLOAT16_BYTES
    attending = (args.full + args.recurrent) * of_layer
    hybrid = args.full * of_layer + STATES_PER_REQUEST * args.recurrent * args.state_bytes
    for name, each in (("all attend", attending), ("hybrid", hybrid)):
        print(f"{name}: {num_bytes // each} requests of {each / 2**20:.0f} MiB")
    print(f"times: {attending / hybrid:.2f}")


if __name__ == "__main__":
    main()
