"""`signalbox up`: the whole ring on this machine, until Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from signalbox.cli.commands.arguments import NUMBER_TYPES, address, at_least_one, number_type
from signalbox.cli.identity import add_tls, files_of
from signalbox.cli.models.name import find_model
from signalbox.cli.ring.bring_up import BringUp, warn
from signalbox.cli.ring.log_dir import LogDir
from signalbox.cli.ring.registry import RunningRing, registered
from signalbox.cli.ring.ring import DEMO_MODEL, Ring, flags, worker_name
from signalbox.cli.ring.supervisor import Supervisor, check_free, dialable, free_addresses
from signalbox.errors import StartupError
from signalbox.links.addresses import is_loopback
from signalbox.links.tls.client_files import CERT_VARIABLE, KEY_VARIABLE, ClientFiles
from signalbox.protocol.speculation import Speculation, parse_speculation
from signalbox.runtime.cores import threads_per_worker
from signalbox.runtime.removed import refuse_settings

EXAMPLE = """\
examples:
  signalbox up
  signalbox up --model smollm2          # after `signalbox pull smollm2`: a model that chats
  signalbox up --model Qwen/Qwen3-0.6B  # of the Hugging Face hub
  signalbox up --model ~/models/Qwen3-0.6B --dtype bfloat16 --num-blocks 4096
  signalbox up --workers 2 --max-inflight-steps 2 --worker-set max-model-len=1024
  signalbox up --standby                # a second scheduler leads when the first one dies
  signalbox up --frontends 2            # clients' connections are spread over them
  signalbox up --tls certs              # after `signalbox certs certs`: services know each other by certificates

`signalbox serve scheduler --help` (worker, frontend) lists the settings for --scheduler-set and
so on. What is not given here is left to the services and their SIGNALBOX_* environment variables.
"""
LAST_PORT = 65_535


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command understands."""
    _add_ring_arguments(parser.add_argument_group("the ring"))
    add_engine_arguments(parser.add_argument_group("the engine (default: the services' own)"))
    add_other_settings(parser)


def add_other_settings(parser: argparse.ArgumentParser) -> None:
    """A way to every setting of every service."""
    other = parser.add_argument_group("other settings")
    for service in ("scheduler", "worker", "frontend"):
        help_text = f"any other setting of the {service}; repeatable"
        other.add_argument(
            f"--{service}-set", action="append", default=[], type=setting, metavar="K=V", help=help_text
        )


def _add_ring_arguments(group: Any) -> None:
    add = group.add_argument
    add(
        "--model",
        default=str(DEMO_MODEL),
        metavar="MODEL",
        help="Hugging Face model directory, or a name that `signalbox pull` takes (demo model)",
    )
    add(
        "--served-model-name",
        nargs="+",
        default=[],
        metavar="NAME",
        help="names that clients use; answers say the first (the model's; demo)",
    )
    add("--workers", type=at_least_one, default=1, metavar="N", help="worker processes (%(default)s)")
    add(
        "--frontends",
        type=at_least_one,
        default=1,
        metavar="N",
        help="frontend processes that share the two ports below (%(default)s); so many for each port where other "
        "machines reach that of gRPC",
    )
    add(
        "--http", type=address, default="127.0.0.1:8000", metavar="HOST:PORT", help="OpenAI API (%(default)s)"
    )
    add("--grpc", type=address, default="127.0.0.1:7301", metavar="HOST:PORT", help="gRPC API (%(default)s)")
    add(
        "--scheduler",
        type=address,
        default="127.0.0.1:7300",
        metavar="HOST:PORT",
        help="scheduler (%(default)s)",
    )
    add(
        "--standby",
        type=address,
        nargs="?",
        const="127.0.0.1:7302",
        metavar="HOST:PORT",
        help="a second scheduler that stands by, at %(const)s unless said otherwise (none)",
    )
    add(
        "--restart-workers",
        action="store_true",
        help="start a worker again when it has ended by itself (that ends everything)",
    )
    add(
        "--worker-listen",
        type=address,
        default="127.0.0.1:7310",
        metavar="HOST:PORT",
        help="first worker; the others take the next ports (%(default)s)",
    )
    add(
        "--log-dir",
        type=Path,
        metavar="DIR",
        help="where the services' logs go (a temporary directory, which stays only if the ring fails)",
    )
    add(
        "--metrics",
        type=address,
        metavar="HOST:PORT",
        help="metrics of the scheduler; a second one, workers and frontends take the next ports (the frontend's at "
        "--http, the others' nowhere)",
    )
    add_tls(group)
    add(
        "--insecure",
        action="store_true",
        help="listen in plaintext where other machines reach it, if told to",
    )
    add("--log-format", choices=("text", "json"), help="how all services log (text)")
    add("--no-proof", dest="proof", action="store_false", help="do not generate a completion when ready")


def add_engine_arguments(group: Any) -> None:
    """Settings of worker and scheduler that matter most."""
    add = group.add_argument
    add("--runner", choices=("torch", "sim"), help="sim makes tokens without a model, for tests of scale")
    add("--device", choices=("cpu", "cuda"), help="where the model runs (cpu)")
    add("--dtype", type=number_type, choices=NUMBER_TYPES, help="of weights and KV cache")
    add("--quantization", choices=("auto", "none", "int8", "int4"), help="of linear layers on a CPU")
    add(
        "--threads",
        type=at_least_one,
        metavar="N",
        help="most CPU threads per worker (both of two cores, else all but one, shared out)",
    )
    add(
        "--speculative",
        type=speculation,
        metavar="METHOD[:K]",
        help="drafts: ngram, or draft for a draft model; K is the most per request and step (none)",
    )
    add("--num-blocks", type=at_least_one, metavar="N", help="blocks of the KV cache per worker")
    add("--block-size", type=at_least_one, metavar="N", help="tokens per block")
    add(
        "--gpu-memory-utilization",
        type=float,
        metavar="SHARE",
        help="share of a GPU's memory that a worker may fill, above 0 to 1",
    )
    add("--max-model-len", type=at_least_one, metavar="N", help="most tokens of a prompt with its output")
    add("--max-num-seqs", type=at_least_one, metavar="N", help="most requests that run at once per worker")
    add("--max-num-batched-tokens", type=at_least_one, metavar="N", help="most tokens per step")
    add(
        "--max-inflight-steps",
        type=at_least_one,
        metavar="D",
        help="1 is synchronous, 2 asynchronous scheduling",
    )


def _chosen_settings(args: argparse.Namespace) -> dict[str, list[str]]:
    """The flags of --scheduler-set and so on, by service."""
    return {"scheduler": args.scheduler_set, "worker": args.worker_set, "frontend": args.frontend_set}


def setting(text: str) -> str:
    """`num_blocks=8` as the flag of a service; true and false as its switches."""
    name, equals, value = text.partition("=")
    name = name.removeprefix("--").replace("_", "-")
    if not equals or not re.fullmatch("[a-z][a-z0-9-]*", name):
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE, such as max-num-seqs=32")
    switches = {"true": f"--{name}", "false": f"--no-{name}"}
    return switches.get(value, f"--{name}={value}")


def speculation(text: str) -> Speculation:
    """The type of --speculative."""
    try:
        return parse_speculation(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def run(args: argparse.Namespace) -> int:
    """Exit status 0 after a clean stop, 1 when a service failed, 128 + signal when stopped too early."""
    if args.frontends > 1 and not hasattr(socket, "SO_REUSEPORT"):
        raise StartupError("this system cannot share a port between processes; leave --frontends at 1")
    for service, chosen in _chosen_settings(args).items():
        refuse_settings(f"SIGNALBOX_{service.upper()}_", chosen, os.environ)
    ring = make_ring(args)
    if ring.asks_clients and ClientFiles.chosen().cert is None:
        raise StartupError(
            "the frontends ask clients for a certificate (--public-tls-ca), and `up` asks them whether they are ready:"
            f" set {CERT_VARIABLE} and {KEY_VARIABLE}"
        )
    workers = {f"--worker-listen ({worker_name(index)})": at for index, at in enumerate(ring.workers)}
    standby = {} if ring.standby is None else {"--standby": ring.standby}
    metrics = {f"--metrics ({name})": at for name, at in ring.metrics.items()}
    public = {"--scheduler": ring.scheduler, **standby, "--http": ring.http, "--grpc": ring.grpc}
    check_free(public | workers | metrics)
    logs = LogDir(args.log_dir)
    if ring.standby is not None:
        logs.check_lease()
    ring = replace(ring, lease=logs.lease, bans=logs.path.absolute())
    supervisor = Supervisor(ring.stages(), logs.path, warn)
    with registered(_describe(ring, logs.path)):
        status = asyncio.run(BringUp(ring, supervisor, _wants_proof(args, ring)).run())
    logs.close(failed=status == 1)
    return status


def _describe(ring: Ring, log_dir: Path) -> RunningRing:
    return RunningRing(
        pid=os.getpid(),
        model=ring.served_model_name,
        http=dialable(ring.http),
        grpc=dialable(ring.grpc),
        schedulers=",".join(map(dialable, ring.schedulers.values())),
        num_workers=len(ring.workers),
        log_dir=str(log_dir.absolute()),
        started_at=time.time(),
    )


def make_ring(args: argparse.Namespace) -> Ring:
    """The processes that the arguments ask for."""
    drafts: Speculation | None = args.speculative
    engine = flags(
        runner=args.runner,
        speculative=f"{drafts.method}:{drafts.num_drafts}" if drafts else None,
        device=args.device,
        dtype=args.dtype,
        quantization=args.quantization,
        threads=args.threads or threads_per_worker(args.workers),
        num_blocks=args.num_blocks,
        block_size=args.block_size,
        gpu_memory_utilization=args.gpu_memory_utilization,
        max_model_len=args.max_model_len,
    )
    limits = flags(
        num_speculative_tokens=drafts.num_drafts if drafts else None,
        max_num_seqs=args.max_num_seqs,
        max_num_batched_tokens=args.max_num_batched_tokens,
        max_inflight_steps=args.max_inflight_steps,
    )
    common = (*flags(log_format=args.log_format), *(("--insecure",) if args.insecure else ()))
    tls = {role: tls_flags(args.tls, role) for role in ("scheduler", "worker", "frontend")}
    model = find_model(args.model)
    names = [name for text in args.served_model_name for name in text.split(",") if name]
    names = names or ["demo" if model.directory == DEMO_MODEL else model.name]
    return Ring(
        model=model.directory,
        served_model_name=names[0],
        further_names=tuple(names[1:]),
        scheduler=args.scheduler,
        standby=args.standby,
        http=args.http,
        grpc=args.grpc,
        workers=_worker_addresses(args.worker_listen, args.workers),
        num_frontends=args.frontends,
        grpc_health=() if is_loopback(args.grpc) else free_addresses(args.frontends),
        restarts_workers=args.restart_workers,
        scheduler_flags=(*common, *tls["scheduler"], *limits, *args.scheduler_set),
        worker_flags=(*common, *tls["worker"], *engine, *args.worker_set),
        frontend_flags=(*common, *tls["frontend"], *args.frontend_set),
        first_metrics=args.metrics,
    )


def tls_flags(folder: Path | None, role: str) -> tuple[str, ...]:
    """Where a service finds its certificate. Raises StartupError when it is not in the folder."""
    if folder is None:
        return ()
    cert, key, ca = files_of(folder.absolute(), role)
    return flags(tls_cert=cert, tls_key=key, tls_ca=ca)


def _worker_addresses(first: str, count: int) -> tuple[str, ...]:
    host, port = first.rsplit(":", 1)
    if int(port) + count - 1 > LAST_PORT:
        raise StartupError(f"there are no {count} ports from {first} on; choose another with --worker-listen")
    return tuple(f"{host}:{int(port) + index}" for index in range(count))


def _wants_proof(args: argparse.Namespace, ring: Ring) -> bool:
    """The sim runner proves nothing, without a tokenizer there is no text, and a certificate for clients is for names
    and authorities that we do not know."""
    return args.proof and args.runner != "sim" and ring.has_tokenizer and not ring.has_public_tls
