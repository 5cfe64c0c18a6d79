"""The command line as a user meets it."""

from __future__ import annotations

import dataclasses
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

import signalbox
from signalbox import __version__
from signalbox.cli.commands.machine import up
from signalbox.cli.commands.machine.serve import with_found_model
from signalbox.cli.commands.service import status as status_command
from signalbox.cli.main import COMMANDS, main, make_parser
from signalbox.cli.models.catalogue import CATALOGUE
from signalbox.cli.ring.ring import DEMO_MODEL, Ring
from signalbox.runtime import cores
from signalbox.runtime.machine.cpus import Cpu, Machine
from signalbox.v1 import admin_pb2
from tests.ports import free_ports
from worker_svc.config import WorkerSettings

Capture = pytest.CaptureFixture[str]


def run_main(*arguments: str) -> int:
    """Exit status, whether returned or raised."""
    try:
        return main(arguments)
    except SystemExit as exit_info:
        assert isinstance(exit_info.code, int)
        return exit_info.code


def make_ring(*arguments: str) -> Ring:
    return up.make_ring(make_parser(["up"]).parse_args(["up", *arguments]))


def command_line(ring: Ring, stage: int, index: int = 0) -> list[str]:
    """Arguments behind `python -m PACKAGE`."""
    service = ring.stages()[stage][index]
    assert service.argv[:2] == (sys.executable, "-m")
    return list(service.argv[3:])


def test_version(capsys: Capture) -> None:
    assert run_main("--version") == 0
    assert capsys.readouterr().out == f"signalbox {__version__}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_has_an_example(command: str, capsys: Capture) -> None:
    assert run_main(command, "--help") == 0
    assert f"\n  signalbox {command}" in capsys.readouterr().out


def test_help_imports_no_command() -> None:
    code = (
        "import sys; from signalbox.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "assert not {'pydantic', 'google.protobuf', 'signalbox.client'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL, timeout=60)


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("--worker=2", "unknown argument --worker; did you mean --workers? (see signalbox up --help)"),
        ("--zzz", "unknown argument --zzz (see signalbox up --help)"),
        ("here", "unknown argument here (see signalbox up --help)"),
    ],
)
def test_an_unknown_argument_is_the_command_s_own_error(argument: str, words: str, capsys: Capture) -> None:
    assert run_main("up", argument) == 2
    error = capsys.readouterr().err
    assert error.startswith("usage: signalbox up ")
    assert error.endswith(f"signalbox up: error: {words}\n")


def test_without_the_benches_the_command_says_where_they_are(tmp_path: Path) -> None:
    """As in a wheel, which leaves them out. An editable installation finds them elsewhere, and is not asked."""
    leave = shutil.ignore_patterns("benchmarks", "demo_model", "__pycache__")
    shutil.copytree(Path(signalbox.__file__).parent, tmp_path / "signalbox", ignore=leave)
    program = (
        "import sys; sys.meta_path[:] = [each for each in sys.meta_path if 'Editable' not in str(each)]\n"
        "from signalbox.cli.main import main; sys.exit(main(['bench', 'scheduler']))"
    )
    command = [sys.executable, "-P", "-c", program]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env=environment, cwd=tmp_path
    )
    assert done.returncode == 1
    assert done.stderr == "signalbox: the benches are in no wheel; run them from a checkout (make install)\n"


@pytest.mark.parametrize("benchmark", ["load", "serve"])
def test_each_bench_of_ours_has_a_help_with_examples(benchmark: str, capsys: Capture) -> None:
    assert run_main("bench", benchmark, "--help") == 0
    assert f"\n  signalbox bench {benchmark} " in capsys.readouterr().out


@pytest.mark.parametrize("service", ["scheduler", "worker", "frontend"])
def test_serve_takes_the_settings_of_the_service(service: str) -> None:
    command = [sys.executable, "-m", "signalbox", "serve", service]
    wrong = subprocess.run([*command, "--zzz"], capture_output=True, text=True, timeout=60, check=False)
    assert wrong.returncode == 2
    assert wrong.stderr.endswith(f"{service}-svc: error: unrecognized arguments: --zzz\n")


@pytest.mark.fresh
def test_serve_runs_a_service_until_a_signal() -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    command = [sys.executable, "-m", "signalbox", "serve", "scheduler", "--listen", address]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        assert any("listening on" in line for line in process.stderr)
        assert run_main("status", "--scheduler", address) == 0
        process.send_signal(signal.SIGINT)
        process.stderr.read()
        assert process.wait(30) == 0


def test_several_frontends_share_the_ports_and_have_names() -> None:
    ring = make_ring("--frontends", "2")
    assert [service.name for service in ring.stages()[2]] == ["frontend-0", "frontend-1"]
    first, second = (command_line(ring, 2, index) for index in range(2))
    assert set(first) ^ set(second) == {"--name=frontend-0", "--name=frontend-1"}
    assert "--reuse-port" in first
    assert "--reuse-port" not in command_line(make_ring(), 2)


def test_where_strangers_reach_grpc_it_has_a_process_of_its_own() -> None:
    """What they do to one costs HTTP nothing (AK11); on loopback one frontend serves both."""
    ring = make_ring("--grpc", "0.0.0.0:7301", "--insecure")
    http, grpc = ring.stages()[2]
    assert (http.name, grpc.name) == ("frontend", "frontend-grpc")
    assert {"--http=127.0.0.1:8000", "--grpc="} <= set(http.argv)
    assert {"--http=", "--grpc=0.0.0.0:7301", "--memory-limit-bytes=1073741824"} <= set(grpc.argv)
    assert f"--health={ring.grpc_health[0]}" in grpc.argv
    assert [service.name for service in make_ring().stages()[2]] == ["frontend"]
    two = make_ring("--grpc", "0.0.0.0:7301", "--insecure", "--frontends", "2", "--metrics", "127.0.0.1:9300")
    assert [service.name for service in two.stages()[2]] == [
        "frontend-0",
        "frontend-1",
        "frontend-grpc-0",
        "frontend-grpc-1",
    ]
    assert "--reuse-port" in command_line(two, 2, 3)
    assert list(two.metrics)[-1] == "frontend-grpc-1"


def test_a_limit_that_is_given_is_the_one_of_memory() -> None:
    ring = make_ring(
        "--grpc", "0.0.0.0:7301", "--insecure", "--frontend-set", "memory-limit-bytes=5000000000"
    )
    limits = [flag for flag in command_line(ring, 2, 1) if flag.startswith("--memory")]
    assert limits == ["--memory-limit-bytes=5000000000"]


def test_each_service_has_a_port_for_its_metrics() -> None:
    ring = make_ring("--frontends", "2", "--workers", "2", "--standby", "--metrics", "127.0.0.1:9300")
    ring = replace(ring, lease=Path("lease"))
    services = [service for stage in ring.stages() for service in stage]
    told = [[flag for flag in service.argv if flag.startswith("--metrics=")] for service in services]
    assert told == [[f"--metrics=127.0.0.1:{9300 + index}"] for index in range(6)]
    assert not any("--metrics" in flag for flag in command_line(make_ring(), 2))


def test_no_command_is_a_usage_error(capsys: Capture) -> None:
    assert run_main() == 2
    assert "COMMAND" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "flag", "scheme"),
    [
        (("generate", "a"), "--address", ""),
        (("status",), "--scheduler", ""),
        (("drain",), "--scheduler", ""),
        (("safe-mode", "off"), "--scheduler", ""),
        (("reload-tenants",), "--scheduler", ""),
        (("chat",), "--url", "http://"),
    ],
)
def test_nothing_answers(command: tuple[str, ...], flag: str, scheme: str, capsys: Capture) -> None:
    place = f"{scheme}127.0.0.1:{free_ports(1)[0]}"
    assert run_main(*command, flag, place) == 1
    expected = f"signalbox: nothing answers at {place}; start it with `signalbox up`\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("on",), "safe-mode on needs --level"),
        (("off", "--level", "1"), "--level goes with on, not with off"),
    ],
)
def test_a_level_goes_with_on(arguments: tuple[str, ...], words: str, capsys: Capture) -> None:
    assert run_main("safe-mode", *arguments) == 1
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("value", ["99999999999", "-1001", "low"])
def test_a_level_is_a_class(value: str, capsys: Capture) -> None:
    assert run_main("safe-mode", "on", f"--level={value}") == 2
    assert "is not a whole number from -1000 to 1000" in capsys.readouterr().err


@pytest.mark.parametrize("value", ["8000", "localhost", "localhost:http", "localhost:70000", "localhost:0"])
def test_an_address_is_host_and_port(value: str, capsys: Capture) -> None:
    assert run_main("up", "--http", value) == 2
    assert "is not HOST:PORT" in capsys.readouterr().err


def test_a_model_directory_that_is_not_there(capsys: Capture) -> None:
    assert run_main("up", "--model", "/no/such/model") == 1
    assert capsys.readouterr().err == "signalbox: the model directory /no/such/model does not exist\n"


def test_a_port_in_use_stops_up_before_anything_starts(tmp_path: Path, capsys: Capture) -> None:
    scheduler, grpc, worker = free_ports(3)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        arguments = ["up", "--model", str(tmp_path), "--http", f"127.0.0.1:{port}"]
        arguments += ["--scheduler", f"127.0.0.1:{scheduler}", "--grpc", f"127.0.0.1:{grpc}"]
        assert run_main(*arguments, "--worker-listen", f"127.0.0.1:{worker}") == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == f"signalbox: port {port} on 127.0.0.1 is in use; choose another with --http\n"


def test_the_demo_ring_leaves_settings_to_the_services() -> None:
    ring = make_ring()
    assert (ring.model, ring.served_model_name) == (DEMO_MODEL, "demo")
    assert command_line(ring, 0) == ["--listen=127.0.0.1:7300"]
    flags = {argument.partition("=")[0] for argument in command_line(ring, 2)}
    assert flags - {"--model"} == {"--scheduler", "--http", "--grpc", "--served-model-name"}
    flags = {argument.partition("=")[0] for argument in command_line(ring, 1)}
    assert flags == {"--scheduler", "--listen", "--worker-id", "--model", "--served-model-name", "--threads"}


@pytest.mark.parametrize("names", [("toy", "gpt-4o"), ("toy,gpt-4o",)])
def test_a_model_has_several_names_for_clients_and_one_for_workers(names: tuple[str, ...]) -> None:
    ring = make_ring("--served-model-name", *names)
    assert "--served-model-name=toy" in command_line(ring, 1)
    assert "--served-model-name=toy,gpt-4o" in command_line(ring, 2)


def test_options_reach_their_service(tmp_path: Path) -> None:
    ring = make_ring(
        *(
            "--model",
            str(tmp_path),
            "--workers",
            "2",
            "--threads",
            "3",
            "--runner",
            "sim",
            "--num-blocks",
            "64",
        ),
        *("--max-num-seqs", "8", "--max-inflight-steps", "2", "--worker-listen", "127.0.0.1:9000"),
        *("--worker-set", "max_model_len=99", "--worker-set", "compile=true", "--frontend-set", "x=false"),
        *("--scheduler-set", "num-slots=16"),
    )
    assert ring.served_model_name == tmp_path.name
    assert command_line(ring, 0)[1:] == ["--max-num-seqs=8", "--max-inflight-steps=2", "--num-slots=16"]
    for index in range(2):
        worker = command_line(ring, 1, index)
        assert f"--listen=127.0.0.1:{9000 + index}" in worker
        assert f"--worker-id=worker-{index}" in worker
        assert worker[-5:] == [
            "--runner=sim",
            "--threads=3",
            "--num-blocks=64",
            "--max-model-len=99",
            "--compile",
        ]
    assert command_line(ring, 2)[-1] == "--no-x"


def test_where_a_model_runs_is_a_workers_affair() -> None:
    options = ("--device", "cuda", "--max-model-len", "4096", "--gpu-memory-utilization", "0.8")
    ring = make_ring(*options)
    worker = command_line(ring, 1)
    assert {"--device=cuda", "--max-model-len=4096", "--gpu-memory-utilization=0.8"} <= set(worker)
    others = {flag.partition("=")[0] for at in (0, 2) for flag in command_line(ring, at)}
    assert not others & {"--device", "--max-model-len", "--gpu-memory-utilization"}


def test_a_standby_shares_a_lease_with_the_scheduler_and_all_know_both() -> None:
    ring = dataclasses.replace(make_ring("--standby", "0.0.0.0:7400"), lease=Path("/run/lease"))
    assert [service.name for service in ring.stages()[0]] == ["scheduler-0", "scheduler-1"]
    assert {service.group for service in ring.stages()[0]} == {"schedulers"}
    shared = {"--lease=file:/run/lease"}
    assert set(command_line(ring, 0)) - shared == {"--listen=127.0.0.1:7300", "--advertise=127.0.0.1:7300"}
    assert set(command_line(ring, 0, 1)) - shared == {"--listen=0.0.0.0:7400", "--advertise=127.0.0.1:7400"}
    for stage in (1, 2):
        assert "--scheduler=127.0.0.1:7300,127.0.0.1:7400" in command_line(ring, stage)
    assert make_ring("--standby").standby == "127.0.0.1:7302"
    assert {service.group for stage in make_ring().stages() for service in stage} == {""}


def test_two_rings_with_a_standby_do_not_share_a_log_directory(tmp_path: Path, capsys: Capture) -> None:
    """B1: their schedulers would contend for one lease, and be one ring."""
    http, grpc, scheduler, standby, worker = (f"127.0.0.1:{port}" for port in free_ports(5))
    flags = [f"--http={http}", f"--grpc={grpc}", f"--scheduler={scheduler}", f"--standby={standby}"]
    flags += [f"--worker-listen={worker}", f"--log-dir={tmp_path}"]
    with (tmp_path / "scheduler.lease").open("w") as leader:
        fcntl.flock(leader, fcntl.LOCK_EX)
        assert run_main("up", *flags) == 1
    said = capsys.readouterr().err.splitlines()
    assert said == [
        f"signalbox: another ring with --standby runs in {tmp_path}; choose another directory with --log-dir"
    ]


@pytest.mark.parametrize("command", ["status", "drain", "top --once", "safe-mode off", "reload-tenants"])
def test_a_list_of_schedulers_is_searched_for_the_leader(command: str, capsys: Capture) -> None:
    first, second = (f"127.0.0.1:{port}" for port in free_ports(2))
    assert run_main(*command.split(), "--scheduler", f"{first},{second}") == 1
    assert f"nothing answers at {first} or {second}" in capsys.readouterr().err
    assert run_main(*command.split(), "--scheduler", f"{first},here") == 2
    assert "'here' is not HOST:PORT" in capsys.readouterr().err


def test_a_frontend_gets_a_model_only_for_its_tokenizer(tmp_path: Path) -> None:
    ring = make_ring("--model", str(tmp_path))
    assert f"--model={tmp_path}" in command_line(ring, 1)
    assert f"--model={tmp_path}" not in command_line(ring, 2)
    (tmp_path / "tokenizer.json").touch()
    assert f"--model={tmp_path}" in command_line(ring, 2)


def machine_of(cores: int) -> Machine:
    return Machine(tuple(Cpu(number, number) for number in range(cores)))


def test_cores_are_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "this_machine", lambda: machine_of(8))
    assert "--threads=7" in command_line(make_ring(), 1)
    assert "--threads=3" in command_line(make_ring("--workers", "2"), 1)
    assert "--threads=1" in command_line(make_ring("--workers", "20"), 1)
    monkeypatch.setattr(cores, "this_machine", lambda: machine_of(2))
    assert "--threads=2" in command_line(make_ring(), 1)


def test_speculation_is_for_worker_and_scheduler() -> None:
    ring = make_ring("--speculative", "ngram:5")
    assert "--speculative=ngram:5" in command_line(ring, 1)
    assert "--num-speculative-tokens=5" in command_line(ring, 0)
    assert not [flag for stage in (0, 1) for flag in command_line(make_ring(), stage) if "specul" in flag]


@pytest.mark.parametrize("value", ["eagle", "ngram:", "draft:0", "ngram:33", "draft:x"])
def test_a_speculation_that_means_nothing_is_refused(value: str, capsys: Capture) -> None:
    assert run_main("up", "--speculative", value) == 2
    assert repr(value) in capsys.readouterr().err


@pytest.mark.parametrize("value", ["threads", "=3", "a b=3"])
def test_a_setting_is_key_and_value(value: str, capsys: Capture) -> None:
    assert run_main("up", "--worker-set", value) == 2
    assert "is not KEY=VALUE" in capsys.readouterr().err


def make_status() -> admin_pb2.GetStatusResponse:
    worker = admin_pb2.WorkerStatus(
        worker_id="worker-0",
        model="demo",
        address="127.0.0.1:7310",
        attached=True,
        num_running=3,
        num_blocks=64,
        num_free_blocks=40,
        num_cached_blocks=4,
        num_steps=10**6,
        num_prefix_hit_tokens=48,
        num_prefix_query_tokens=64,
        num_draft_tokens=40,
        num_accepted_tokens=10,
    )
    return admin_pb2.GetStatusResponse(num_waiting=1, num_frontends=2, workers=[worker])


def test_the_status_table() -> None:
    summary, _, heads, row = status_command.to_table(make_status(), "h:1").split("\n")
    assert summary == "scheduler h:1: 1 request waiting, 2 frontends, 1 worker"
    assert heads.startswith("worker    model  address         state ")
    assert " ".join(row.split()) == "worker-0 demo 127.0.0.1:7310 attached 3 0 20 of 64 4 1000000 75% 25% 0"


def test_the_status_as_json_keeps_numbers() -> None:
    document = status_command.to_json(make_status())
    assert document["num_frontends"] == 2
    assert document["workers"][0]["num_steps"] == 10**6


@pytest.mark.parametrize("name", ["float16", "fp16", "half"])
@pytest.mark.parametrize("command", ["up", "bench serve"])
def test_float16_is_refused_with_the_worker_s_words(command: str, name: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        main([*command.split(), "--dtype", name])
    with pytest.raises(ValidationError) as refusal:
        WorkerSettings.model_validate({"dtype": name})
    (error,) = refusal.value.errors()
    sentence = error["msg"].removeprefix("Value error, ")
    assert "set bfloat16, or float32" in sentence
    assert capsys.readouterr().err.endswith(f"error: argument --dtype: {sentence}\n")


@pytest.mark.parametrize("command", ["up", "bench serve", "serve worker", "serve frontend"])
def test_a_model_is_named_in_the_same_way_everywhere(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    refusals = {
        "smollm2": "smollm2 is not here yet; this fetches it (93 MB): signalbox pull smollm2",
        "nosuchname": "there is no model nosuchname: it is no directory here, not smollm2, and not OWNER/NAME of the "
        "Hugging Face hub; `signalbox models` lists those that are here",
        "/no/such": "the model directory /no/such does not exist",
    }
    for name, refusal in refusals.items():
        assert main([*command.split(), "--model", name]) == 1
        assert capsys.readouterr().err == f"signalbox: {refusal}\n"


def test_a_served_model_gets_its_directory_and_a_worker_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    directory = CATALOGUE["smollm2"].directory
    directory.mkdir(parents=True)
    found = f"--model={directory}"
    assert with_found_model("worker", ["--model=smollm2", "--x"]) == [
        "--x",
        found,
        "--served-model-name=smollm2",
    ]
    assert with_found_model("frontend", ["--model", "smollm2"]) == [found]
    given = ["--served-model-name=a"]
    assert with_found_model("worker", ["--model", "smollm2", *given]) == [*given, found]
    assert with_found_model("worker", ["--model", str(directory)]) == [found]
    assert with_found_model("scheduler", ["--help"]) == ["--help"]
