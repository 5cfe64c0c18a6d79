"""Measures the runner alone, without services, against the memory floor and against plain transformers.

    python -m signalbox.benchmarks.runner.bench --model DIR --streams 1 32 --output-tokens 128 --json

All streams start together: prompts are computed in chunks of whole prompts, then all decode at once, without an
end-of-sequence token; greedily unless sampling settings are given. With `--transformers`, `generate` runs the same
greedily in the same process. With more than one thread set OMP_WAIT_POLICY=PASSIVE and
GOMP_SPINCOUNT=2000 on a machine that does anything else, as the worker service does for itself.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from signalbox.cli.commands.arguments import NUMBER_TYPES, number_type
from signalbox.cli.models.name import model_directory
from worker_svc.core.batch import Batch
from worker_svc.core.requests.sampling import SamplingParams, SamplingTable
from worker_svc.core.requests.state_versions import StateVersions
from worker_svc.runner import torch_runner
from worker_svc.runner.attention import attention
from worker_svc.runner.attention.kv_cache import bytes_per_block
from worker_svc.runner.cpu.decoder import FusedDecoder
from worker_svc.runner.cpu.fused import FusedAttention
from worker_svc.runner.cpu.kept_linear import KeptLinear
from worker_svc.runner.cpu.native_linear import NativeLinear
from worker_svc.runner.cpu.packed_linear import PackedLinear
from worker_svc.runner.model.kept_weights import Quantization
from worker_svc.runner.torch_runner import TorchRunner

BLOCK_SIZE = 16
MAX_CHUNK_TOKENS = 512
COPY_BYTES = 256 << 20
PACKED = (FusedDecoder, NativeLinear, KeptLinear)
"""Modules whose weights are in the order in which our kernels read them."""
SPLIT_STEPS = 10
"""Decode steps that run with clocks around the parts, apart from those that are measured."""


@dataclass
class Result:
    """One line of output. Times are of wall clocks unless they say otherwise; a step is one decode step."""

    system: str
    streams: int
    output_tok_s: float
    """Over prompts and decoding."""
    decode_tok_s: float
    step_ms: float
    step_cpu_ms: float
    """Processor time of all threads: what other processes take from the machine does not show in it."""
    prefill_ms: float | None = None
    fastest_step_ms: float | None = None
    """On a machine that does other things too, the nearest to what a step takes by itself."""
    floor_ms: float | None = None
    """Bytes of weights and of the KV read, over the bandwidth measured by copying."""
    floor_share: float | None = None
    """Part of the step that the floor is; of the processor time, so that it holds on a shared machine."""
    split_ms: dict[str, float] = field(default_factory=dict)
    """A step by part: linears, attention, sampling, rest."""


class Streams:
    """`count` requests with random prompts on a runner, in shuffled blocks."""

    def __init__(
        self,
        runner: TorchRunner,
        count: int,
        prompt_tokens: int,
        output_tokens: int,
        sampling: SamplingParams,
    ) -> None:
        random = np.random.default_rng(0)
        width = -(-(prompt_tokens + output_tokens) // BLOCK_SIZE)
        self._runner, self._count, self._step_id = runner, count, 0
        self.block_tables = random.permutation(count * width).astype(np.int32).reshape(count, width)
        self.tokens = np.zeros((count, prompt_tokens + output_tokens + 1), np.int32)
        self.tokens[:, :prompt_tokens] = random.integers(0, runner.info.vocab_size, (count, prompt_tokens))
        self.lengths = np.full(count, prompt_tokens, np.int32)
        self._num_prompt_tokens = self.lengths.copy()
        self._sampling = SamplingTable(count)
        self._states = StateVersions(count, runner.info.num_state_versions)
        for slot in range(count):
            self._sampling.set(slot, replace(sampling, seed=slot))

    def prefill(self) -> None:
        """Runs all prompts and samples the first tokens."""
        prompt_tokens = int(self.lengths[0])
        at_once = max(1, MAX_CHUNK_TOKENS // prompt_tokens)
        for first in range(0, self._count, at_once):
            rows = np.arange(first, min(first + at_once, self._count), dtype=np.int32)
            self._run(rows, prompt_tokens, num_decode_rows=0)

    def decode(self) -> None:
        """One token for each stream."""
        self._run(np.arange(self._count, dtype=np.int32), 1, num_decode_rows=self._count)

    def _run(self, slots: Any, length: int, num_decode_rows: int) -> None:
        ends = self.lengths[slots]
        positions = (ends[:, None] - length + np.arange(length, dtype=np.int32)).astype(np.int32)
        count = len(slots)
        self._step_id += 1
        batch = Batch(
            step_id=self._step_id,
            slots=slots,
            num_decode_rows=num_decode_rows,
            query_starts=np.arange(count + 1, dtype=np.int32) * np.int32(length),
            token_ids=self.tokens[slots[:, None], positions].ravel(),
            positions=positions.ravel(),
            seq_lens=ends.copy(),
            block_tables=self.block_tables[slots],
            sample_index=np.arange(1, count + 1, dtype=np.int32) * np.int32(length) - np.int32(1),
            sample_rows=np.arange(count, dtype=np.int32),
            sample_output_positions=ends - self._num_prompt_tokens[slots],
            sampling=self._sampling,
            tokens=self.tokens,
            num_prompt_tokens=self._num_prompt_tokens,
            num_tokens=self.lengths,
        )
        self._states.take(batch)
        sampled = self._runner.execute(batch)
        self._states.commit(batch, ())
        self.tokens[slots, ends] = sampled.token_ids
        self.lengths[slots] += 1


class Clocks:
    """Time spent in parts of a step."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {"linears": 0.0, "attention": 0.0, "sampling": 0.0}
        self.of_decoder = np.zeros(3)
        """What a fused decoder says of its products, its attention and the rest of it."""

    def around(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with its time counted to `part`."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            started = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds[part] += time.perf_counter() - started

        return timed


@contextmanager
def clocks_around_parts(runner: TorchRunner) -> Iterator[Clocks]:
    """Puts clocks around linear layers, attention (with rope and the KV write, if fused) and sampling."""
    clocks = Clocks()
    undo: list[tuple[Any, str, Any]] = []

    def swap(holder: Any, name: str, part: str) -> None:
        original = getattr(holder, name)
        undo.append((holder, name, original))
        setattr(holder, name, clocks.around(part, original))

    kernels = attention.native_kernels()
    for module in runner.model.module.modules():
        if isinstance(module, PackedLinear | NativeLinear | KeptLinear | nn.Linear):
            swap(module, "forward", "linears")
        if isinstance(module, FusedDecoder):
            module.seconds = clocks.of_decoder
    if kernels is not None and any(isinstance(m, FusedAttention) for m in runner.model.module.modules()):
        swap(kernels, "rope_and_write", "attention")
    swap(attention, "attend", "attention")
    swap(torch_runner, "sample", "sampling")
    try:
        yield clocks
    finally:
        for module in runner.model.module.modules():
            if isinstance(module, FusedDecoder):
                module.seconds = None
        for holder, name, original in undo:
            setattr(holder, name, original)


def measure(
    runner: TorchRunner, streams: int, prompt_tokens: int, output_tokens: int, sampling: SamplingParams
) -> Result:
    """Runs `streams` requests from prompt to last token."""
    run = Streams(runner, streams, prompt_tokens, output_tokens, sampling)
    started = time.perf_counter()
    run.prefill()
    decode_started, cpu_started = time.perf_counter(), time.process_time()
    fastest = np.inf
    for _ in range(output_tokens - 1):
        step_started = time.perf_counter()
        run.decode()
        fastest = min(fastest, time.perf_counter() - step_started)
    ended, cpu_ended = time.perf_counter(), time.process_time()
    steps = max(1, output_tokens - 1)
    return Result(
        system="signalbox",
        streams=streams,
        output_tok_s=round(streams * output_tokens / (ended - started), 1),
        decode_tok_s=round(streams * (output_tokens - 1) / (ended - decode_started), 1),
        step_ms=round((ended - decode_started) / steps * 1e3, 3),
        prefill_ms=round((decode_started - started) * 1e3, 1),
        fastest_step_ms=round(fastest * 1e3, 3),
        step_cpu_ms=round((cpu_ended - cpu_started) / steps * 1e3, 3),
        split_ms=split_of_step(runner, run),
    )


def split_of_step(runner: TorchRunner, run: Streams) -> dict[str, float]:
    """Milliseconds of a decode step by part; the last positions are decoded again for it."""
    run.lengths -= min(SPLIT_STEPS, int(run.lengths.min()) - 1)
    with clocks_around_parts(runner) as clocks:
        started = time.perf_counter()
        for _ in range(SPLIT_STEPS):
            run.decode()
        whole = time.perf_counter() - started
    parts = clocks.seconds
    parts["linears"] += float(clocks.of_decoder[0])
    parts["attention"] += float(clocks.of_decoder[1])
    parts["rest"] = whole - sum(parts.values())
    return {part: round(seconds / SPLIT_STEPS * 1e3, 3) for part, seconds in parts.items()}


def copy_bandwidth() -> float:
    """Bytes per second that are read and written when a large tensor is copied; the best of a few."""
    source = torch.ones(COPY_BYTES, dtype=torch.uint8)
    target = torch.empty_like(source)
    best = 0.0
    for _ in range(5):
        started = time.perf_counter()
        target.copy_(source)
        best = max(best, 2 * COPY_BYTES / (time.perf_counter() - started))
    return best


def bytes_of_step(runner: TorchRunner, weight_bytes: int, streams: int, context: int) -> int:
    """Bytes of weights and KV that a decode step has to read."""
    model = runner.model
    per_token = bytes_per_block(model.layer_shapes, 1, model.dtype)
    return weight_bytes + streams * context * per_token


def measure_transformers(
    model_dir: Path, dtype: torch.dtype, streams: int, prompt_tokens: int, output_tokens: int
) -> Result:
    """Plain `generate` of one static batch."""
    from transformers import AutoModelForCausalLM  # noqa: PLC0415

    loader: Any = AutoModelForCausalLM
    model = loader.from_pretrained(model_dir, dtype=dtype).eval()
    model.generation_config.eos_token_id = None
    prompts = torch.randint(0, model.config.vocab_size, (streams, prompt_tokens))

    def generate(count: int) -> tuple[float, float]:
        started, cpu_started = time.perf_counter(), time.process_time()
        model.generate(
            prompts,
            attention_mask=torch.ones_like(prompts),
            max_new_tokens=count,
            min_new_tokens=count,
            do_sample=False,
            pad_token_id=0,
        )
        return time.perf_counter() - started, time.process_time() - cpu_started

    with torch.inference_mode():
        first, first_cpu = generate(1)
        whole, whole_cpu = generate(output_tokens)
    steps = max(1, output_tokens - 1)
    return Result(
        system="transformers",
        streams=streams,
        output_tok_s=round(streams * output_tokens / whole, 1),
        decode_tok_s=round(streams * steps / max(whole - first, 1e-9), 1),
        step_ms=round((whole - first) / steps * 1e3, 3),
        step_cpu_ms=round((whole_cpu - first_cpu) / steps * 1e3, 3),
    )


def weight_bytes_of(model_dir: Path) -> int:
    """Size of the safetensors files, by the dtype on disk: an embedding that is tied is read once, as the head."""
    return sum(path.stat().st_size for path in model_dir.glob("*.safetensors"))


def packed_bytes(module: nn.Module) -> int:
    """Bytes of all weights that were packed; 0 where none were."""
    sizes = (each.weight_bytes for each in module.modules() if isinstance(each, PACKED))
    return sum(sizes)


def load_runner(options: argparse.Namespace, device: str = "cpu") -> TorchRunner:
    """The runner, with a cache for as many streams as are asked for."""
    width = -(-(options.prompt_tokens + options.output_tokens) // BLOCK_SIZE)
    return TorchRunner(
        options.model,
        served_model_name=options.model.name,
        dtype=options.dtype,
        quantization=Quantization(options.quantization),
        device=device,
        has_groups=False,
        num_slots=max(options.streams),
        num_blocks=max(options.streams) * width,
        block_size=BLOCK_SIZE,
        threads=options.threads,
    )


def run_bench(options: argparse.Namespace) -> list[Result]:
    """All lines: for each number of streams the runner, then transformers if asked for."""
    runner = load_runner(options, options.device)
    weight_bytes = packed_bytes(runner.model.module) or weight_bytes_of(options.model)
    sampling = SamplingParams(
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        min_p=options.min_p,
        repetition_penalty=options.repetition_penalty,
    )
    measure(runner, 1, min(16, options.prompt_tokens), min(8, options.output_tokens), sampling)  # warm-up
    results = []
    for streams in options.streams:
        result = measure(runner, streams, options.prompt_tokens, options.output_tokens, sampling)
        context = options.prompt_tokens + options.output_tokens // 2
        floor = bytes_of_step(runner, weight_bytes, streams, context) / copy_bandwidth() * 1e3
        result.floor_ms, result.floor_share = round(floor, 3), round(floor / result.step_cpu_ms, 3)
        results.append(result)
        if options.transformers:
            results.append(
                measure_transformers(
                    options.model, runner.model.dtype, streams, options.prompt_tokens, options.output_tokens
                )
            )
    return results


def add_load(parser: argparse.ArgumentParser) -> None:
    """Model and load, the same for all that is compared."""
    parser.add_argument("--model", type=model_directory, required=True)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 32, 64])
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--output-tokens", type=int, default=128)
    parser.add_argument("--dtype", default="auto", type=number_type, choices=NUMBER_TYPES)
    parser.add_argument("--quantization", default="auto", choices=[each.value for each in Quantization])
    parser.add_argument("--threads", type=int)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_load(parser)
    parser.add_argument("--device", default="cpu", help="cuda: checks the outputs first, see cuda_bench")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--top-k", type=int, default=0)
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--min-p", type=float, default=0.0)
    parser.add_argument("--repetition-penalty", type=float, default=1.0)
    parser.add_argument("--transformers", action="store_true", help="measure plain generate as well")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    options = parser.parse_args()
    if options.device == "cuda":
        if options.temperature:
            parser.error(
                "--temperature is for the CPU; on a GPU outputs are checked, which needs greedy ones"
            )
        from signalbox.benchmarks.runner import cuda  # noqa: PLC0415

        cuda.main(options)
        return
    for result in run_bench(options):
        values = {name: value for name, value in asdict(result).items() if value not in (None, {})}
        print(
            json.dumps(values) if options.json else "  ".join(f"{k}={v}" for k, v in values.items()),
            flush=True,
        )


if __name__ == "__main__":
    main()
