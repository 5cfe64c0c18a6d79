"""What an operator can set about scheduling, and how it is resolved against a worker."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationInfo,
    field_validator,
)

from scheduler_svc.core.state.policy_spec import PolicySpec, parse_policy
from scheduler_svc.core.state.ttft_targets import parse_ttft_targets


class SchedulerConfig(BaseModel):
    """Limits and policy of the scheduler. Limits of one worker, not of all together. Raises ValidationError, a
    ValueError, for what is out of range or contradicts another setting."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    max_num_seqs: PositiveInt | None = None
    """Most running requests per worker. Unset: 256, or what the token budget and the worker's slots allow."""
    max_num_batched_tokens: PositiveInt | None = None
    """Token budget of a step. Unset: 2048, or what the worker's runner takes if that is less."""
    max_model_len: int | None = Field(default=None, ge=2)
    """Longest prompt plus output in tokens. Unset: what the worker's model allows."""
    long_prefill_token_threshold: NonNegativeInt = 0
    """Longest prefill chunk of one request per step. 0: only the budget limits it."""
    max_num_partial_prefills: NonNegativeInt = 0
    """Most prompts that may be partly computed at once. 0: no limit."""
    enable_chunked_prefill: bool = True
    """Without it a prompt runs in one step, and prompts above the budget are refused."""
    enable_prefix_caching: bool = True
    """Reuse KV blocks of equal prefixes."""
    policy: str = "fcfs"
    """Order of the requests. fcfs: by arrival. priority: lower priority numbers first; they may displace others. fair:
    tenants share by what they have had. deadline: the earliest deadline by ttft_targets first, among those that can be
    met. Joined by +, as in priority+fair; the arrival decides the rest."""
    ttft_targets: str = Field(default="", validate_default=True)
    """Times to first token, as PRIORITY:MILLISECONDS joined by commas (0:500,1:2000). The metrics count them under any
    policy; the policy deadline goes by them. Empty: there are none."""
    aging_s: NonNegativeFloat = 60.0
    """Seconds of waiting that raise a request by one class. 0: never."""
    lower_class_prefill_tokens: NonNegativeInt = 0
    """Prompt tokens in a step beyond which prompts of lower classes add none while a higher class has started requests
    in the last ten seconds (a quarter of it is always theirs): steps stay short for those who are expected. 0: only the
    budget limits them. Needs the policy priority and chunked prefill."""
    fair_input_weight: PositiveFloat = 1.0
    """What a computed prompt token costs a tenant, in virtual tokens."""
    fair_output_weight: PositiveFloat = 2.0
    """What an output token costs."""
    fair_credit: NonNegativeFloat = 2000.0
    """Virtual tokens that a tenant may have saved up when one of its requests waits again while others of it run."""
    safe_mode_ttft_ms: PositiveFloat | None = None
    """By when first tokens of the classes kept by safe mode are promised, in milliseconds; too many later ones set safe
    mode. Unset: only `signalbox safe-mode` does, and level, budget, window and lift time below are refused. Needs the
    policy priority."""
    safe_mode_level: int = Field(default=0, ge=-1000, le=1000)
    """Highest priority number that goes on when late first tokens have set safe mode."""
    safe_mode_budget: float = Field(default=0.01, gt=0, le=0.1)
    """Share of first tokens that may be late. Ten times as many set safe mode."""
    safe_mode_window_s: PositiveFloat = 60.0
    """Seconds over which the share is counted."""
    safe_mode_lift_s: NonNegativeFloat = 300.0
    """Seconds for which the share must have stayed within the budget before safe mode is lifted."""
    safe_mode_pauses: bool = True
    """Pause running requests of suspended classes; they keep their KV blocks while there is room. Without it they run
    to their end, and only new ones wait."""
    affinity_wait_ms: NonNegativeFloat = 50.0
    """How long a request may be left for a worker that has more of its prompt cached, in milliseconds."""
    affinity_min_tokens: PositiveInt = 64
    """Cached tokens that make another worker worth waiting for, or worth being read from (pull_prefixes)."""
    balance_wait_ms: NonNegativeFloat = 200.0
    """How long a request may be left for a worker that has fewer requests, and steps enough in flight, in
    milliseconds."""
    max_inflight_steps: int = Field(default=2, ge=1, le=16)
    """Steps sent ahead per worker: 1 is synchronous scheduling, 2 is asynchronous."""
    just_in_time_steps: bool = True
    """Send a step ahead only just in time, so that requests that arrive meanwhile still make it."""
    decode_burst_ms: NonNegativeFloat = 50.0
    """Steps that only decode are sent several at once while nothing waits, in milliseconds that they take together, so
    that short steps cost fewer messages. What arrives meanwhile does not wait for them. 0: one at a time."""
    num_speculative_tokens: int = Field(default=0, ge=0, le=32)
    """Draft tokens allowed per request and step, at most what the worker can verify."""
    watermark_blocks_per_seq: NonNegativeInt = 2
    """Free blocks kept per running request when another one is admitted or resumed."""
    side_copy_blocks: NonNegativeInt = 32
    """A start that needs so many block copies between device and host tier, or more, waits for them while they run
    beside the steps; fewer are made within its step. 0: all are."""
    max_handoffs_per_worker: NonNegativeInt = 4
    """Requests that a worker that drains hands over to others at a time. 0: it hands over none by itself."""
    rebalance_pause_s: PositiveFloat = 30.0
    """How long a request that was moved unasked stays where it is, in seconds."""
    resume_elsewhere: bool = False
    """Hand preempted requests over to workers that can compute them again before there is room where they were."""
    prefill_hand_off: Literal["always", "never"] = "always"
    """Whether requests are handed over, after their prompts, to workers whose role is to decode. Without roles nothing
    moves."""
    pull_prefixes: bool = True
    """Read the cached beginning of a prompt from a worker that is busy, or drains, where that is sooner than computing
    it: between workers that hand over (their setting hand_off)."""
    max_waiting: PositiveInt = 100_000
    """Requests that may wait for one model; more are refused. Of one tenant: max_queued in the file of tenants."""
    max_waiting_bytes: int = Field(default=384 << 20, ge=1 << 20)
    """Bytes that all waiting requests may take together (prompts, hashes, metadata); more are refused, and submitted
    again if they were accepted before. What is on its way to a worker that does not read comes on top."""
    max_hello_bytes: int = Field(default=256 << 20, ge=1 << 20)
    """Bytes that the hello of one worker may have with all that it tells of its requests (block tables, hashes and
    metadata of each); a larger one is refused. 4,000 requests of 8,000 tokens have 40 MB."""
    no_worker_grace_s: NonNegativeFloat = 30.0
    """How long requests may wait for a model none of whose workers is there, in seconds."""
    worker_grace_s: NonNegativeFloat = 10.0
    """How long a worker may be gone before its requests are lost, in seconds."""
    worker_silence_ms: float = Field(default=1500.0, ge=500)
    """How long a worker may say nothing before it gets nothing new, in milliseconds. Its requests move when no frontend
    hears it either, and another worker has room."""
    step_hang_ms: float = Field(default=5000.0, ge=100)
    """How long a step may take before it counts as hung, in milliseconds, however fast its worker is. A step that
    should take long may take four times that, but no longer than step_timeout_s of its worker."""
    frontend_grace_s: NonNegativeFloat = 10.0
    """How long a frontend may be gone before its requests are cancelled, in seconds."""
    integrity_check_s: NonNegativeFloat = 10.0
    """How often tables and counts are checked against each other while there is nothing to do, in seconds; they take a
    hundredth of the time at most. 0: never."""
    start_grace_s: NonNegativeFloat = 5.0
    """How long a new scheduler waits for workers to say hello before unknown requests are lost, in seconds: at most,
    where frontends name the workers that may have them, and no longer than until those are there. Workers that a
    frontend names and hears are waited for as long as worker_grace_s, if that is longer."""

    @field_validator("policy")
    @classmethod
    def _check_policy(cls, policy: str) -> str:
        parse_policy(policy)
        return policy

    @field_validator("ttft_targets")
    @classmethod
    def _check_ttft_targets(cls, targets: str, info: ValidationInfo) -> str:
        policy = info.data.get("policy")
        if not parse_ttft_targets(targets) and policy is not None and parse_policy(policy).has_deadlines:
            raise ValueError(f"the policy {policy!r} goes by the times to first token, and there are none")
        return targets

    @field_validator("lower_class_prefill_tokens")
    @classmethod
    def _check_lower_classes(cls, tokens: int, info: ValidationInfo) -> int:
        policy, is_chunked = info.data.get("policy"), info.data.get("enable_chunked_prefill")
        if tokens and policy is not None and not parse_policy(policy).has_classes:
            raise ValueError(f"the policy {policy!r} has no classes; add priority")
        if tokens and is_chunked is False:
            raise ValueError("prompts that run in one step cannot be cut; it needs --enable-chunked-prefill")
        return tokens

    @field_validator("safe_mode_ttft_ms")
    @classmethod
    def _check_safe_mode(cls, ttft_ms: float | None, info: ValidationInfo) -> float | None:
        policy = info.data.get("policy")
        if ttft_ms is not None and policy is not None and not parse_policy(policy).has_classes:
            raise ValueError(f"safe mode suspends classes, and the policy {policy!r} has none; add priority")
        return ttft_ms

    @field_validator("safe_mode_level", "safe_mode_budget", "safe_mode_window_s", "safe_mode_lift_s")
    @classmethod
    def _check_error_budget(cls, value: float, info: ValidationInfo) -> float:
        is_alone = "safe_mode_ttft_ms" in info.data and info.data["safe_mode_ttft_ms"] is None
        assert info.field_name is not None
        if is_alone and value != cls.model_fields[info.field_name].default:  # defaults come here too
            raise ValueError("without a promised time there is no error budget; add --safe-mode-ttft-ms")
        return value

    @cached_property
    def order(self) -> PolicySpec:
        """The policy, as put together of its parts."""
        return parse_policy(self.policy)

    @cached_property
    def has_classes(self) -> bool:
        """The policy knows classes of priority."""
        return self.order.has_classes

    @cached_property
    def is_fair(self) -> bool:
        """The policy shares between tenants."""
        return self.order.is_fair


@dataclass(frozen=True)
class WorkerLimits:
    """`SchedulerConfig` with every `None` resolved against one worker."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    num_draft_tokens: int
    max_inflight_steps: int
    """As the setting has it of a worker with one lane; each other lane has one more (LA3)."""


DEFAULT_MAX_NUM_SEQS = 256
DEFAULT_MAX_NUM_BATCHED_TOKENS = 2048


def resolve(
    config: SchedulerConfig,
    *,
    num_slots: int,
    max_num_batched_tokens: int,
    max_request_tokens: int,
    max_draft_tokens: int,
    num_lanes: int = 1,
) -> WorkerLimits:
    """Resolves `config` for a worker that offers this much.

    Raises ValueError with a sentence when explicit settings contradict each other. Every decode row needs 1 + drafts
    tokens of the budget in every step, so that many rows must fit: then a running request is never held back by the
    budget, and the oldest prefill always gets at least one token.
    """
    drafts = min(config.num_speculative_tokens, max_draft_tokens)
    budget = config.max_num_batched_tokens or min(DEFAULT_MAX_NUM_BATCHED_TOKENS, max_num_batched_tokens)
    if budget > max_num_batched_tokens:
        raise ValueError(
            f"max_num_batched_tokens is {budget}, but the worker's runner takes {max_num_batched_tokens}"
        )
    affordable = budget // (1 + drafts)
    seqs = config.max_num_seqs or min(DEFAULT_MAX_NUM_SEQS, affordable, num_slots)
    if seqs > affordable:
        raise ValueError(
            f"max_num_seqs is {seqs}, but a budget of {budget} tokens pays for {affordable} rows of {1 + drafts} tokens"
        )
    return WorkerLimits(
        max_num_seqs=min(seqs, num_slots),
        max_num_batched_tokens=budget,
        max_model_len=min(config.max_model_len or max_request_tokens, max_request_tokens),
        num_draft_tokens=drafts,
        max_inflight_steps=config.max_inflight_steps + num_lanes - 1,
    )
