"""What the faces and the links of one frontend stand on: made once, and handed around as one record."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import uuid4

from frontend_svc.access.access_control import AccessControl
from frontend_svc.access.keys import watch_keys
from frontend_svc.access.lender import Lender
from frontend_svc.api.http.body_bytes import BodyBytes
from frontend_svc.clock import loop_time
from frontend_svc.config import FrontendSettings
from frontend_svc.links.operations import OperationQueue
from frontend_svc.links.orders import Orders
from frontend_svc.metrics import Metrics
from frontend_svc.model_facts import read_model_facts
from frontend_svc.models import ModelDirectory
from frontend_svc.pooling.model_head import ModelHead, read_model_head
from frontend_svc.request_log import LoggedSessions, log_refusal
from frontend_svc.requests.model_defaults import NO_DEFAULTS, read_model_defaults
from frontend_svc.requests.processor import RequestProcessor
from frontend_svc.requests.sessions.session import Session
from frontend_svc.requests.sessions.session_table import SessionTable
from frontend_svc.requests.sessions.surroundings import Observer
from frontend_svc.requests.structured_output import FormCheck
from frontend_svc.templates.prompts import ChatPrompts
from frontend_svc.text.model_language import find_language
from frontend_svc.text.parsing.language import Language
from frontend_svc.text.tokenizer import Tokenizer, load_tokenizer
from frontend_svc.tracing import TracedSessions
from signalbox.telemetry import spans


@dataclass(frozen=True)
class Services:
    """What the faces and links of one process share."""

    settings: FrontendSettings
    instance: str
    """UUID of this process."""
    tracer: spans.Tracer
    metrics: Metrics
    access: AccessControl
    directory: ModelDirectory
    table: SessionTable
    processor: RequestProcessor
    body_bytes: BodyBytes
    prompts: ChatPrompts
    language: Language
    """What outputs of the model mean."""
    orders: Orders
    operations: OperationQueue
    """What the scheduler has still to be told."""
    lender: Lender
    """What the scheduler lends of limits of keys."""
    form_check: FormCheck | None
    """None: there is no tokenizer, and workers check."""
    head: ModelHead
    """The labels of a model that classifies, and how a model that scores wants pairs written."""

    @property
    def silence_s(self) -> float:
        """How long a scheduler may say nothing, in seconds."""
        return self.settings.scheduler_silence_ms / 1e3

    def stop(self) -> None:
        """Ends threads and processes; the last spans are sent, which may take a while."""
        if self.form_check is not None:
            self.form_check.close()
        self.tracer.stop()


def make_services(settings: FrontendSettings) -> Services:
    """Raises StartupError when the model directory or the key file cannot be read."""
    key_file = None if settings.key_file is None else watch_keys(settings.key_file)
    silence_s = settings.scheduler_silence_ms / 1e3
    orders = Orders(loop_time, recent_s=2 * silence_s)
    operations = OperationQueue(orders)
    lender = Lender(operations.wake, time.monotonic, answer_s=settings.queue_s + silence_s)
    access = AccessControl(key_file, share_prefix_cache=settings.share_prefix_cache, lender=lender)
    instance = uuid4().hex
    tokenizer = form_check = None
    if settings.model is not None:
        tokenizer = load_tokenizer(settings.model, settings.chat_template)
        form_check = FormCheck(
            settings.model / "tokenizer.json", tokenizer.eos_token_id, settings.form_limits
        )
    tracer = spans.start("frontend", settings.name or instance)
    metrics = Metrics(settings.name, tracer.counts)
    directory = ModelDirectory(
        tokenizer_fingerprint=tokenizer.fingerprint if tokenizer else "",
        served_model_name=settings.served_model_name,
    )
    observer: Observer[Session] = TracedSessions(metrics) if tracer.is_on else metrics
    if settings.log_requests != "off":
        with_prompts = settings.log_requests == "prompts"
        observer = LoggedSessions(observer, tokenizer, with_prompts=with_prompts)
        metrics.watch_refusals(partial(log_refusal, access))
    table = SessionTable(
        operations,
        observer,
        replay_limit=settings.replay_limit,
        max_backlog_tokens=settings.max_backlog_tokens,
        max_open_requests=settings.max_open_requests,
        max_open_bytes=settings.max_open_bytes,
    )
    metrics.watch_open(lambda: len(table))
    defaults = NO_DEFAULTS
    if settings.model is not None and settings.sampling_defaults == "model":
        defaults = read_model_defaults(settings.model)
    processor = RequestProcessor(
        table,
        directory,
        tokenizer,
        settings.limits,
        tracer,
        form_check,
        access,
        defaults,
        _eos_tokens(settings.model, tokenizer),
    )
    return Services(
        settings,
        instance,
        tracer,
        metrics,
        access,
        directory,
        table,
        processor,
        BodyBytes(settings.max_body_bytes_at_once),
        ChatPrompts(
            tokenizer.chat if tokenizer else None,
            settings.limits,
            tokenizer.special_tokens if tokenizer else {},
        ),
        find_language(tokenizer, settings.reasoning_parser, settings.tool_parser),
        orders,
        operations,
        lender,
        form_check,
        ModelHead() if settings.model is None else read_model_head(settings.model),
    )


def _eos_tokens(model: Path | None, tokenizer: Tokenizer | None) -> frozenset[int]:
    """What workers end an output at: the files of the directory say it, and its tokenizer."""
    if model is None or tokenizer is None:
        return frozenset()
    own = () if tokenizer.eos_token_id is None else (tokenizer.eos_token_id,)
    return frozenset((*read_model_facts(model).eos_token_ids, *own))
