"""What an operator can set about scheduling."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SchedulerConfig:
    """Limits and policy of the scheduler. Limits of one worker, not of all together."""

    max_num_seqs: int | None = None
    """Most running requests per worker; None: 256, or what the token budget and the worker's slots allow."""
    max_num_batched_tokens: int | None = None
    """Token budget of a step; None: 2,048, or what the worker's runner takes if that is less."""
    max_model_len: int | None = None
    """Longest prompt plus output; None: what the worker's model allows."""
    long_prefill_token_threshold: int = 0
    """Longest prefill chunk of one request per step; 0: only the budget limits it."""
    max_num_partial_prefills: int = 0
    """Most prompts that may be partly computed at once; 0: no limit."""
    enable_chunked_prefill: bool = True
    """False: a prompt runs in one step or waits; prompts above the budget are refused."""
    enable_prefix_caching: bool = True
    """Reuse KV blocks of equal prefixes."""
    max_inflight_steps: int = 2
    """Steps sent ahead per worker: 1 is synchronous scheduling, 2 is asynchronous."""
    just_in_time_steps: bool = True
    """Send a step ahead only just in time, so that requests that arrive meanwhile still make it."""
    num_speculative_tokens: int = 0
    """Draft tokens allowed per request and step, at most what the worker can verify."""
    watermark_blocks_per_seq: int = 2
    """Free blocks kept per running request when another one is admitted or resumed, for the growth of the running."""
    side_copy_blocks: int = 32
    """A start that needs so many copies between device and host tier, or more, waits for them while they run beside the
    steps; fewer are made within its step. 0: all are."""
    policy: str = "fcfs"
    """fcfs: by arrival. priority: lower priority numbers first. fair: tenants by what they have had. deadline: whose
    first token is due first. Parts are joined by `+`, as in priority+fair; the arrival decides what they leave open."""
    ttft_targets: str = ""
    """Milliseconds within which requests are to have a first token, by priority number: `0:500,1:2000`."""
    lower_class_prefill_tokens: int = 0
    """Prompt tokens in a step beyond which lower classes add none, while a higher class has started requests lately;
    0: only the budget limits them."""
    aging_s: float = 60.0
    """Seconds of waiting that raise a request by one class; 0: never."""
    fair_input_weight: float = 1.0
    """What a computed prompt token costs a tenant, in virtual tokens."""
    fair_output_weight: float = 2.0
    """What an output token costs."""
    fair_credit: float = 2000.0
    """Virtual tokens that a tenant may have saved up when one of its requests waits again while others of it run."""
    safe_mode_ttft_ms: float | None = None
    """By when first tokens of the classes kept by safe mode are promised; later ones use up the error budget. None:
    only an operator sets safe mode."""
    safe_mode_level: int = 0
    """Classes with a higher priority number are suspended while the error budget burns; the others have the budget."""
    safe_mode_budget: float = 0.01
    """Share of first tokens that may be late. Safe mode is set when ten times as many are."""
    safe_mode_window_s: float = 60.0
    """Over which time the share is counted."""
    safe_mode_lift_s: float = 300.0
    """How long the share must have stayed within the budget before safe mode is lifted."""
    safe_mode_pauses: bool = True
    """Running requests of suspended classes are paused; False: they run to their end."""
    placement_lookahead: int = 8
    """Waiting requests that a worker may leave to others before it stops looking for one to take."""
    affinity_wait_ms: float = 50.0
    """How long a request may be left for a worker that has more of its prompt cached."""
    affinity_max_skips: int = 16
    """How many steps of other workers may leave it."""
    affinity_min_tokens: int = 64
    """Cached tokens that make another worker worth waiting for."""
    max_waiting: int = 100_000
    """Requests that may wait for one model; more are refused."""
    max_waiting_bytes: int = 384 << 20
    """What waiting requests may take together, in bytes: prompts, hashes and metadata; more are refused."""
    max_hello_bytes: int = 256 << 20
    """What the hello of one worker may take with all parts of its snapshot, in bytes; a larger one is refused."""
    no_worker_grace_s: float = 30.0
    """How long requests may wait for a model none of whose workers is there."""
    worker_grace_s: float = 10.0
    """How long a worker may be gone before its requests are lost."""
    worker_silence_ms: float = 1500.0
    """How long a worker may say nothing before it gets nothing new, and its requests move if no frontend hears it."""
    step_hang_ms: float = 5000.0
    """How long a step may take before its worker is suspected to hang, however fast its steps are."""
    frontend_grace_s: float = 10.0
    """How long a frontend may be gone before its requests are cancelled."""
    integrity_check_s: float = 10.0
    """How often the invariants are looked at while there is nothing to do; 0: never."""
    start_grace_s: float = 5.0
    """How long a new scheduler waits for workers to say hello before it calls unknown requests lost: at most, where
    frontends name the workers that may have them."""

    @property
    def has_classes(self) -> bool:
        """The policy knows classes of priority."""
        return "priority" in self.policy

    @property
    def is_fair(self) -> bool:
        """The policy shares between tenants."""
        return "fair" in self.policy


@dataclass(frozen=True)
class WorkerLimits:
    """`SchedulerConfig` with every `None` resolved against one worker."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    num_draft_tokens: int


DEFAULT_MAX_NUM_SEQS = 256
DEFAULT_MAX_NUM_BATCHED_TOKENS = 2048


def resolve(
    config: SchedulerConfig,
    *,
    num_slots: int,
    max_num_batched_tokens: int,
    max_request_tokens: int,
    max_draft_tokens: int,
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
    )
