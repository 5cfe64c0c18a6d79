"""Every name that our telemetry speaks: spans, events, attributes and metrics.

`gen_ai.*` and `error.type` are OpenTelemetry's semantic conventions for generative AI (status: development); names of
our own begin with `signalbox`. In Prometheus dots are underscores and the unit is a suffix.
"""

from __future__ import annotations

from typing import Final

PROVIDER: Final = "signalbox"
"""Value of `gen_ai.provider.name`."""
OPERATION_CHAT: Final = "chat"
OPERATION_TEXT_COMPLETION: Final = "text_completion"
OPERATION_EMBEDDINGS: Final = "embeddings"
"""Values of `gen_ai.operation.name`; the frontend's span is called by it and the model."""

# -- spans --

SPAN_QUEUE: Final = "queue"
"""Scheduler: one stay of a request in the queue, new or preempted."""
SPAN_PREFILL: Final = "prefill"
"""Worker: from the step that starts (or resumes) a request to the one that ends its prefill."""
SPAN_DECODE: Final = "decode"
"""Worker: from there until it ends or is preempted."""

# -- events --

EVENT_FIRST_TOKEN: Final = "first_token"
EVENT_PLACED: Final = "placed"
EVENT_PREEMPTED: Final = "preempted"
EVENT_RESUMED: Final = "resumed"
EVENT_LOST: Final = "lost"
"""Nobody has the request any more; its frontend may submit it again."""
EVENT_CANCELLED: Final = "cancelled"
EVENT_RELEASED: Final = "released"
"""Worker: the scheduler took the request away, since it was cancelled or its stop string was found."""
EVENT_FINISHED: Final = "finished"

# -- attributes --

GEN_AI_OPERATION_NAME: Final = "gen_ai.operation.name"
GEN_AI_PROVIDER_NAME: Final = "gen_ai.provider.name"
GEN_AI_REQUEST_MODEL: Final = "gen_ai.request.model"
GEN_AI_REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
GEN_AI_RESPONSE_ID: Final = "gen_ai.response.id"
GEN_AI_RESPONSE_FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
GEN_AI_USAGE_INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
GEN_AI_USAGE_OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
ERROR_TYPE: Final = "error.type"
"""Name of a class of signalbox/errors.py."""

REQUEST_ID: Final = "signalbox.request.id"
ATTEMPT: Final = "signalbox.request.attempt"
NUM_CACHED_TOKENS: Final = "signalbox.request.num_cached_tokens"
"""Tokens that the prefix cache saved."""
NUM_PREEMPTIONS: Final = "signalbox.request.num_preemptions"
QUEUE_REASON: Final = "signalbox.queue.reason"
"""Why a request was in the queue: `waiting` or `preempted`."""
WORKER_ID: Final = "signalbox.worker.id"
NUM_TOKENS: Final = "signalbox.run.num_tokens"
"""Tokens that a prefill computed, or output tokens that a decode made."""
NUM_STEPS: Final = "signalbox.run.num_steps"
"""Steps between the first and the last one of a run, both included."""
REASON: Final = "signalbox.reason"
"""Why a request finished (stop, length, abort, error) or was lost."""

LOSS_CAUSE: Final = "signalbox.loss.cause"
"""Why an attempt was lost: crash, worker_gone, moved, silent, unknown, output_lost, bad_blocks."""

# -- metrics, as Prometheus calls them --

METRIC_REQUEST_DURATION: Final = "gen_ai_server_request_duration_seconds"
METRIC_TIME_TO_FIRST_TOKEN: Final = "gen_ai_server_time_to_first_token_seconds"
METRIC_TIME_PER_OUTPUT_TOKEN: Final = "gen_ai_server_time_per_output_token_seconds"
METRIC_TOKEN_USAGE: Final = "gen_ai_client_token_usage"

LABEL_OPERATION: Final = "gen_ai_operation_name"
LABEL_PROVIDER: Final = "gen_ai_provider_name"
LABEL_MODEL: Final = "gen_ai_request_model"
LABEL_TOKEN_TYPE: Final = "gen_ai_token_type"
LABEL_ERROR: Final = "error_type"

FRONTEND: Final = "signalbox_frontend"
"""Prefix of the frontend's own metrics, in the order of frontend_svc/metrics.py."""
METRIC_REQUESTS: Final = f"{FRONTEND}_requests"
METRIC_PROMPT_TOKENS: Final = f"{FRONTEND}_prompt_tokens"
METRIC_CACHED_TOKENS: Final = f"{FRONTEND}_cached_prompt_tokens"
METRIC_OUTPUT_TOKENS: Final = f"{FRONTEND}_output_tokens"
METRIC_LOSSES: Final = f"{FRONTEND}_losses"
METRIC_WORKER_REACH: Final = f"{FRONTEND}_worker_reach"
METRIC_OPEN_SESSIONS: Final = f"{FRONTEND}_open_sessions"
METRIC_INTER_TOKEN: Final = f"{FRONTEND}_inter_token_seconds"
METRIC_DELIVERY: Final = f"{FRONTEND}_delivery_seconds"
METRIC_FRONTEND_INFO: Final = f"{FRONTEND}_info"

SCHEDULER: Final = "signalbox_scheduler"
METRIC_WAITING: Final = f"{SCHEDULER}_requests_waiting"
METRIC_LEADS: Final = f"{SCHEDULER}_leads"
METRIC_FRONTENDS: Final = f"{SCHEDULER}_frontends"
METRIC_FAIRNESS_GAP: Final = f"{SCHEDULER}_fairness_gap_tokens"
METRIC_TTFT_DEADLINES: Final = f"{SCHEDULER}_ttft_deadlines"
METRIC_SAFE_MODE: Final = f"{SCHEDULER}_safe_mode"
METRIC_SUSPENDED: Final = f"{SCHEDULER}_requests_suspended"
METRIC_BURN_RATE: Final = f"{SCHEDULER}_error_budget_burn_rate"
METRIC_DISPLACED: Final = f"{SCHEDULER}_requests_displaced"
METRIC_DISPLACEMENTS: Final = f"{SCHEDULER}_displacements"
METRIC_LINK_TROUBLES: Final = f"{SCHEDULER}_worker_link_troubles"
METRIC_WORKER_ATTACHED: Final = f"{SCHEDULER}_worker_attached"
METRIC_WORKER_SUSPECT: Final = f"{SCHEDULER}_worker_suspect"
METRIC_LENT_BLOCKS: Final = f"{SCHEDULER}_blocks_lent"
METRIC_RUNNING: Final = f"{SCHEDULER}_requests_running"
METRIC_PREEMPTED: Final = f"{SCHEDULER}_requests_preempted"
METRIC_BLOCKS: Final = f"{SCHEDULER}_blocks"
METRIC_BLOCKS_TOTAL: Final = f"{SCHEDULER}_worker_blocks"
METRIC_HOST_BLOCKS: Final = f"{SCHEDULER}_host_blocks_used"
METRIC_STEPS_IN_FLIGHT: Final = f"{SCHEDULER}_steps_in_flight"
METRIC_STEPS: Final = f"{SCHEDULER}_steps"
METRIC_STEP_EXECUTE: Final = f"{SCHEDULER}_step_execute_seconds"
METRIC_SCHEDULED_OUTPUT_TOKENS: Final = f"{SCHEDULER}_output_tokens"
METRIC_PREFILL_TOKENS: Final = f"{SCHEDULER}_prefill_tokens"
METRIC_PREFIX_QUERIES: Final = f"{SCHEDULER}_prefix_cache_query_tokens"
METRIC_PREFIX_HITS: Final = f"{SCHEDULER}_prefix_cache_hit_tokens"
METRIC_HOST_HITS: Final = f"{SCHEDULER}_host_cache_hit_tokens"
METRIC_PREEMPTIONS: Final = f"{SCHEDULER}_preemptions"
METRIC_BLOCK_COPIES: Final = f"{SCHEDULER}_block_copies"

WORKER: Final = "signalbox_worker"
METRIC_WORKER_STEPS: Final = f"{WORKER}_steps"
METRIC_WORKER_STEP_SECONDS: Final = f"{WORKER}_step_seconds"
METRIC_WORKER_DRAFT_TOKENS: Final = f"{WORKER}_draft_tokens"
METRIC_WORKER_STEP_AGE: Final = f"{WORKER}_step_age_seconds"
METRIC_WORKER_SLOTS: Final = f"{WORKER}_slots"
METRIC_WORKER_LINKED: Final = f"{WORKER}_attached"
METRIC_OUTBOUND_LOGS: Final = f"{WORKER}_outbound_logs"
METRIC_OUTBOUND_MESSAGES: Final = f"{WORKER}_outbound_messages"
METRIC_OUTBOUND_BYTES: Final = f"{WORKER}_outbound_bytes"

RELAY: Final = "signalbox_relay"
METRIC_RELAY_LINKED: Final = f"{RELAY}_attached"
METRIC_RELAY_ATTACHMENTS: Final = f"{RELAY}_attachments"
METRIC_RELAY_WORKERS: Final = f"{RELAY}_workers"
METRIC_RELAY_LINKS: Final = f"{RELAY}_worker_links"
METRIC_RELAY_MESSAGES: Final = f"{RELAY}_messages"
METRIC_RELAY_ENTRIES: Final = f"{RELAY}_entries"
METRIC_RELAY_WAITING: Final = f"{RELAY}_waiting"

METRIC_SPANS: Final = "signalbox_telemetry_spans"
"""Spans by result: exported, failed, dropped."""
