"""Rules load; each alert keeps quiet while all is well, fires when its outage has lasted, and ends with it; each has a
runbook."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from signalbox import errors
from tests.monitoring.conftest import read_rules, rules_of

DOCS = Path(__file__).parents[2]
STEP_S = 15
QUIET, AFTER = 80, 120
"""Steps before an outage and after it."""
SLACK_S = 600
"""What a rate over five minutes may take to follow, and more."""
WORKER = 'worker_id="w",model="m"'
TTFT = 'gen_ai_server_time_to_first_token_seconds_bucket{gen_ai_request_model="m",le='
QUEUE = 'signalbox_frontend_queue_seconds_bucket{gen_ai_request_model="m",le='
SCHEDULER, FRONTEND = "signalbox_scheduler", "signalbox_frontend"
Series = dict[str, tuple[int, int]]
GAUGES: dict[str, Series] = {
    "NoLeader": {f'{SCHEDULER}_leads{{instance="a"}}': (1, 0), f'{SCHEDULER}_leads{{instance="b"}}': (0, 0)},
    "ServiceDown": {'up{job="signalbox-worker",instance="a"}': (1, 0)},
    "StepHangs": {'signalbox_worker_step_age_seconds{instance="a"}': (0, 40)},
    "WorkerGone": {f"{SCHEDULER}_worker_attached{{{WORKER}}}": (1, 0)},
    "WorkerSuspect": {f"{SCHEDULER}_worker_suspect{{{WORKER}}}": (0, 1)},
    "WorkerUnreachable": {f'{FRONTEND}_worker_reach{{worker_id="w",state="silent"}}': (0, 1)},
    "BudgetBurns": {f"{SCHEDULER}_error_budget_burn_rate": (0, 3)},
    "SafeMode": {f'{SCHEDULER}_safe_mode{{asked_by="operator"}}': (0, 1)},
    "CacheFull": {
        f'{SCHEDULER}_blocks{{{WORKER},state="held"}}': (10, 39),
        f"{SCHEDULER}_worker_blocks{{{WORKER}}}": (40, 40),
    },
    "PairLeftOut": {f'{SCHEDULER}_pair_left_out{{source="a",target="b",what="pull"}}': (0, 1)},
    "PartEnded": {'signalbox_part_ended{part="disk-writer",instance="a"}': (0, 1)},
    "IdentitiesMixed": {f'{SCHEDULER}_model_identities{{model="m"}}': (1, 2)},
}
"""Values while all is well, and in the outage."""
COUNTERS: dict[str, Series] = {
    "Stalled": {f"{SCHEDULER}_steps_total{{{WORKER}}}": (10, 0)},
    "WorkerRefused": {f'{SCHEDULER}_worker_link_troubles_total{{worker_id="w"}}': (0, 1)},
    "AttemptsLost": {f'{FRONTEND}_losses_total{{cause="crash"}}': (0, 1)},
    "Errors": {
        f'{FRONTEND}_requests_total{{outcome="stop",gen_ai_request_model="m"}}': (100, 90),
        f'{FRONTEND}_requests_total{{outcome="InternalError",gen_ai_request_model="m"}}': (0, 10),
    },
    "MemoryShort": {f'{FRONTEND}_connections_refused_total{{instance="a",reason="memory"}}': (0, 1)},
    "Refusals": {
        f'{FRONTEND}_requests_total{{outcome="stop",gen_ai_request_model="m"}}': (10, 8),
        f'{FRONTEND}_requests_total{{outcome="ResourceExhaustedError"}}': (0, 2),
    },
    "FirstTokenLate": {TTFT + '"10"}': (1, 0), TTFT + '"20"}': (1, 1), TTFT + '"+Inf"}': (1, 1)},
    "QueueLong": {QUEUE + '"5"}': (1, 0), QUEUE + '"10"}': (1, 1), QUEUE + '"+Inf"}': (1, 1)},
    "Preempting": {f"{SCHEDULER}_preemptions_total{{{WORKER}}}": (0, 15)},
    "SpansLost": {'signalbox_telemetry_spans_total{job="j",result="dropped"}': (0, 1)},
}
"""Growth per step while all is well, and in the outage."""
BESIDE: dict[str, Series] = {
    "Stalled": {
        f"{SCHEDULER}_requests_waiting": (3, 3),
        f'{SCHEDULER}_requests_suspended{{state="waiting"}}': (2, 2),
    },
}
"""Gauges of the outages of counters."""
FOR_EVER = {"IntegrityViolation"}
"""One is enough, and it does not end by itself."""
ALERTS = {rule["alert"].removeprefix("Signalbox"): rule for rule in rules_of("alert")}


def seconds(text: str) -> int:
    return int(text[:-1]) * {"s": 1, "m": 60, "h": 3600}[text[-1]]


def gauge(values: tuple[int, int], num_bad: int) -> str:
    well, bad = values
    return f"{well}+0x{QUIET - 1} {bad}+0x{num_bad - 1} {well}+0x{AFTER}"


def counter(growth: tuple[int, int], num_bad: int) -> str:
    well, bad = growth
    first, second = well * QUIET, well * QUIET + bad * num_bad
    return f"0+{well}x{QUIET - 1} {first}+{bad}x{num_bad - 1} {second}+{well}x{AFTER}"


def expect(alert: str, at_s: int, count: int) -> dict[str, Any]:
    samples = [{"labels": "{}", "value": count}] if count else []
    query = f'count(ALERTS{{alertname="Signalbox{alert}",alertstate="firing"}})'
    return {"expr": query, "eval_time": f"{at_s}s", "exp_samples": samples}


def run_tests(promtool: str, folder: Path, *tests: dict[str, Any]) -> None:
    """Has promtool evaluate the rules over these series."""
    (folder / "rules.yaml").write_text(yaml.safe_dump(read_rules()))
    every = f"{STEP_S}s"
    whole = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": every,
        "tests": [{"interval": every} | test for test in tests],
    }
    (folder / "tests.yaml").write_text(yaml.safe_dump(whole))
    done = subprocess.run(
        [promtool, "test", "rules", "tests.yaml"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def told(series: dict[str, str]) -> dict[str, Any]:
    return {"input_series": [{"series": name, "values": values} for name, values in series.items()]}


def test_rules_load(promtool: str, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(read_rules()))
    subprocess.run([promtool, "check", "rules", str(tmp_path / "rules.yaml")], check=True)


@pytest.mark.parametrize("alert", sorted(GAUGES | COUNTERS))
def test_an_alert_fires_when_its_outage_has_lasted_and_ends_with_it(
    promtool: str, tmp_path: Path, alert: str
) -> None:
    wait_s = seconds(ALERTS[alert]["for"])
    num_bad = (wait_s + SLACK_S) // STEP_S
    series = {name: gauge(values, num_bad) for name, values in GAUGES.get(alert, {}).items()}
    series |= {name: gauge(values, num_bad) for name, values in BESIDE.get(alert, {}).items()}
    series |= {name: counter(growth, num_bad) for name, growth in COUNTERS.get(alert, {}).items()}
    began_s, ended_s = QUIET * STEP_S, (QUIET + num_bad) * STEP_S
    moments = [(began_s - STEP_S, 0), (ended_s - STEP_S, 1), (ended_s + AFTER * STEP_S, 0)]
    if wait_s > STEP_S:
        moments.append((began_s + wait_s - STEP_S, 0))
    run_tests(
        promtool,
        tmp_path,
        told(series) | {"promql_expr_test": [expect(alert, *moment) for moment in moments]},
    )


def test_the_first_trouble_of_a_worker_is_enough(promtool: str, tmp_path: Path) -> None:
    """Its counter is not there before."""
    for alert, name in (
        ("WorkerRefused", f'{SCHEDULER}_worker_link_troubles_total{{worker_id="w"}}'),
        ("IntegrityViolation", f'{SCHEDULER}_integrity_violations_total{{worker_id=""}}'),
    ):
        expected = [expect(alert, QUIET * STEP_S - STEP_S, 0), expect(alert, QUIET * STEP_S, 1)]
        run_tests(promtool, tmp_path, told({name: f"_x{QUIET} 1+0x5"}) | {"promql_expr_test": expected})


@pytest.mark.parametrize(("status", "count"), [(75, 1), (137, 0)])
def test_an_end_for_memory_is_told_by_its_exit_status(
    promtool: str, tmp_path: Path, status: int, count: int
) -> None:
    pod = '{namespace="n",pod="p",container="frontend"}'
    series = {
        f"kube_pod_container_status_restarts_total{pod}": "0+0x9 1+0x9",
        f"kube_pod_container_status_last_terminated_exitcode{pod}": f"_x10 {status}+0x9",
    }
    asked = [expect("MemoryShort", 9 * STEP_S, 0), expect("MemoryShort", 12 * STEP_S, count)]
    run_tests(promtool, tmp_path, told(series) | {"promql_expr_test": asked})


def test_an_end_for_memory_is_told_by_the_next_process(promtool: str, tmp_path: Path) -> None:
    series = {f'{FRONTEND}_memory_ends_total{{instance="a"}}': "0+0x9 1+0x9"}
    run_tests(
        promtool, tmp_path, told(series) | {"promql_expr_test": [expect("MemoryShort", 12 * STEP_S, 1)]}
    )


def test_classes_that_are_held_back_are_no_stall(promtool: str, tmp_path: Path) -> None:
    series = {
        f"{SCHEDULER}_requests_waiting": "3+0x80",
        f'{SCHEDULER}_requests_suspended{{state="waiting"}}': "3+0x80",
        f"{SCHEDULER}_steps_total{{{WORKER}}}": "7+0x80",
    }
    run_tests(promtool, tmp_path, told(series) | {"promql_expr_test": [expect("Stalled", 1200, 0)]})


def test_every_alert_is_tried() -> None:
    assert set(ALERTS) == set(GAUGES) | set(COUNTERS) | FOR_EVER


def test_every_alert_has_a_runbook_with_its_name() -> None:
    for alert, rule in ALERTS.items():
        path, _, anchor = rule["annotations"]["runbook"].partition("#")
        headings = re.findall(r"^#+ (.*)$", (DOCS / path).read_text(), re.MULTILINE)
        assert anchor in {heading.lower() for heading in headings}, f"{path} has no heading Signalbox{alert}"
        assert rule["annotations"]["summary"]


def test_errors_of_ours_are_those_that_answer_with_5xx() -> None:
    """But for a limit of time that the client set, and what ends a process."""
    names = {kind.__name__ for kind, status in errors.STATUS.items() if status.http >= 500}
    names -= {"DeadlineExceededError", "LeaseLostError", "StartupError"}
    (record,) = (rule for rule in rules_of("record") if rule["record"] == "signalbox:errors:ratio5m")
    found = re.search(r'outcome=~"([^"]*)"', record["expr"])
    assert found
    assert set(found[1].split("|")) == names


@pytest.mark.parametrize(
    ("waiting", "growth", "seconds_left"), [(3000, 1500, 30), (3000, 0, 3000), (0, 0, 0), (0, 1500, 0)]
)
def test_seconds_of_backlog_have_a_number_at_a_standstill(
    promtool: str, tmp_path: Path, waiting: int, growth: int, seconds_left: int
) -> None:
    """An autoscaler asks in any case: `growth` tokens are computed every 15 s, `waiting` wait."""
    series = {
        f"{SCHEDULER}_waiting_tokens": f"{waiting}+0x{AFTER}",
        f"{SCHEDULER}_prefill_tokens_total{{{WORKER}}}": f"0+{growth}x{AFTER}",
    }
    name = "signalbox:backlog:seconds"
    expected = [{"labels": name, "value": seconds_left}]
    asked = {"expr": name, "eval_time": f"{QUIET * STEP_S}s", "exp_samples": expected}
    run_tests(promtool, tmp_path, told(series) | {"promql_expr_test": [asked]})
