"""The one way in: what a client asked becomes an open session, or an error before anything was submitted."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

from frontend_svc import tracing
from frontend_svc.access.access_control import AccessControl
from frontend_svc.access.quota import QuotaLease
from frontend_svc.config import Limits
from frontend_svc.models import Model, ModelDirectory
from frontend_svc.pooling.prompt import tokenize_pooled
from frontend_svc.requests import validation
from frontend_svc.requests.block_hashes import BlockHashes
from frontend_svc.requests.model_defaults import NO_DEFAULTS, ModelDefaults, fill_in
from frontend_svc.requests.request import CheckedRequest, ClientRequest, StructuredOutput
from frontend_svc.requests.sessions.session import Session
from frontend_svc.requests.sessions.session_table import SessionTable, make_request_id
from frontend_svc.requests.structured_output import check_conflicts, check_reasoning
from frontend_svc.text.bad_words import tokenize_bad_words
from frontend_svc.text.parsed_stream import ParsedStream
from frontend_svc.text.text_stream import OutputStream, TextOptions, TextStream
from frontend_svc.text.tokenizer import Tokenizer
from signalbox.errors import SignalboxError, UnavailableError, UnsupportedError
from signalbox.grammar.token_rules import TokenRules
from signalbox.telemetry.spans import OFF, Span, Tracer

LONG_PROMPT_TOKENS = 4096
"""Prompts from this length on are hashed in a thread: it takes more than about half a millisecond."""


FormCheck = Callable[[StructuredOutput, str, TokenRules, Sequence[str]], Awaitable[None]]
"""Gets a form, the tenant that asks for it, and what other fields forbid, with their names."""


class RequestProcessor:
    """Checks, tokenizes, hashes and submits requests."""

    def __init__(
        self,
        table: SessionTable,
        directory: ModelDirectory,
        tokenizer: Tokenizer | None,
        limits: Limits,
        tracer: Tracer = OFF,
        check_form: FormCheck | None = None,
        access: AccessControl | None = None,
        defaults: ModelDefaults = NO_DEFAULTS,
        eos_tokens: frozenset[int] = frozenset(),
    ) -> None:
        """`check_form` raises InvalidRequestError for a structure that cannot be followed; None: workers check.
        Without `access` anybody may do everything."""
        self.access = access or AccessControl()
        self.tokenizer = tokenizer
        self.stopping = False
        """No request is accepted any more."""
        self.make_refusal: Callable[[], UnavailableError] = partial(
            UnavailableError, "the server is stopping"
        )
        """The error of each request then."""
        self._table = table
        self._directory = directory
        self.limits = limits
        self._tracer = tracer
        self._check_form = check_form
        self._eos_tokens = eos_tokens
        """What ends an output of the model, unless a request ignores it."""
        self.defaults = defaults
        """What the model brings."""

    async def open(self, request: ClientRequest) -> Session:
        """Raises the SignalboxError for which the request is refused."""
        return (await self.open_choices(request, 1))[0]

    async def open_choices(
        self, request: ClientRequest, count: int, lease: QuotaLease | None = None
    ) -> list[Session]:
        """`count` sessions over one prompt, with one seed and an index each; all or none are opened.

        Log-probabilities of the prompt come with the first one only. `lease` has to have places for all of them;
        None: nobody counts. Raises the SignalboxError for which the request is refused.
        """
        spans = [tracing.begin(self._tracer, request) for _ in range(count)]
        try:
            checked, hashes = await self._prepare(self.access.authorize(request))
            if lease is not None:
                await lease.take_prompt(checked.num_prompt_tokens)
            return self._open_all(make_choices(checked, count), hashes, spans, request, lease)
        except SignalboxError as error:
            for span in spans:
                if span is not None and not span.end_s:
                    tracing.refuse(span, request, error)
            raise

    def _open_all(
        self,
        checked: Sequence[CheckedRequest],
        hashes: BlockHashes | None,
        spans: Sequence[Span | None],
        request: ClientRequest,
        lease: QuotaLease | None,
    ) -> list[Session]:
        """Opens one session for each of `checked`; none once the frontend stops, which cancels those that it has."""
        self._check_open()
        sessions: list[Session] = []
        try:
            for each, span in zip(checked, spans, strict=True):
                trace = tracing.context_for_services(self._tracer, request, span)
                text = self._make_text(request)
                own = hashes.copy() if hashes else None
                sessions.append(self._table.open(replace(each, trace=trace), text, own, span, lease))
        except SignalboxError:
            for session in sessions:
                session.cancel()
            raise
        return sessions

    def _make_text(self, request: ClientRequest) -> OutputStream | None:
        """None: tokens are all that is given."""
        if self.tokenizer is None:
            return None
        stops = request.sampling.get("stop", ())
        ends = frozenset(request.sampling.get("stop_token_ids", ()))
        if not request.sampling.get("ignore_eos"):
            ends |= self._eos_tokens if request.turn_end is None else self._eos_tokens | {request.turn_end}
        options = TextOptions(request.keep_stop, request.with_special_tokens, ends)
        if request.parsing is None:
            return TextStream(self.tokenizer, stops, options)
        return ParsedStream(self.tokenizer, stops, request.parsing, options)

    def model_of(self, name: str) -> Model:
        """The model that a call names; empty: the one that is served. Raises UnknownModelError, UnavailableError, and
        PermissionDeniedError where the caller's key is not for it."""
        model = self._directory.resolve(name)
        self.access.caller.require_model(model.name)
        return model

    async def _prepare(self, request: ClientRequest) -> tuple[CheckedRequest, BlockHashes | None]:
        """Checks, tokenizes and hashes a request."""
        self._check_open()
        model = self.model_of(request.model)
        validation.check_task(request, model)
        request = fill_in(request, self.defaults)
        validation.check_request(request)
        validation.check_sampling(request, self.limits, model.vocab_size)
        self._check_text(request)
        if self.tokenizer is not None:
            validation.check_text_length(request, self.tokenizer.longest_token, model, self.limits)
        if request.pooling is None:
            token_ids = validation.truncate_prompt(request, await self._tokenize(request), model)
        else:
            request, token_ids = await tokenize_pooled(request, self.tokenizer, model)
        validation.check_prompt_length(request, len(token_ids), self.limits)
        if len(token_ids) < LONG_PROMPT_TOKENS:
            prompt, hashes = prepare_prompt(request, token_ids, model)
        else:
            prompt, hashes = await asyncio.to_thread(prepare_prompt, request, token_ids, model)
        check_conflicts(request)
        bad_words = await self._tokenize_bad_words(request)
        await self._check_rules(request, bad_words)
        checked = replace(make_checked(request, model, prompt, len(token_ids)), bad_token_sequences=bad_words)
        self._check_open()  # threads took their time
        return checked, hashes

    async def _check_rules(self, request: ClientRequest, bad_words: tuple[tuple[int, ...], ...]) -> None:
        """Refuses a form that cannot be followed, and tokens that contradict it or a bound on reasoning."""
        allowed = tuple(sorted(set(request.sampling.get("allowed_token_ids", ()))))
        rules = TokenRules(allowed, bad_words)
        check_reasoning(request, rules)
        form = request.sampling.get("structured_output")
        if form is not None and self._check_form is not None:
            fields = [request.names.sampling_prefix + name for name in rules.fields]
            await self._check_form(form, request.tenant, rules, fields)

    def require_tokenizer(self, field: str) -> Tokenizer:
        """Raises UnsupportedError, which names `field`, when there is none."""
        if self.tokenizer is None:
            raise UnsupportedError(f"{field} needs a tokenizer, which this server has not", field=field)
        return self.tokenizer

    def _check_open(self) -> None:
        if self.stopping:
            raise self.make_refusal()

    def _check_text(self, request: ClientRequest) -> None:
        if self.tokenizer is not None:
            return
        if isinstance(request.prompt, str):
            raise UnsupportedError(
                f"{request.names.prompt} must be token ids: this server has no tokenizer",
                field=request.names.prompt,
            )
        for name in ("stop", "bad_words", "structured_output"):
            if request.sampling.get(name):
                self.require_tokenizer(request.names.sampling_prefix + name)

    async def _tokenize(self, request: ClientRequest) -> Sequence[int]:
        if not isinstance(request.prompt, str):
            return request.prompt
        assert self.tokenizer is not None
        return await self.tokenizer.encode(request.prompt, add_special_tokens=request.add_special_tokens)

    async def _tokenize_bad_words(self, request: ClientRequest) -> tuple[tuple[int, ...], ...]:
        bad_words = request.sampling.get("bad_words")
        if not bad_words:
            return ()
        assert self.tokenizer is not None
        return await tokenize_bad_words(bad_words, self.tokenizer)


def prepare_prompt(
    request: ClientRequest, token_ids: Sequence[int], model: Model
) -> tuple[bytes, BlockHashes | None]:
    """Checks the prompt's tokens; packs and hashes them."""
    prompt = validation.check_prompt_tokens(request, token_ids, model)
    if not model.block_size:
        return prompt, None
    hashes = BlockHashes(
        model.name, request.cache_salt, model.block_size, request.cache_tenant, model.identities
    )
    hashes.extend(prompt)
    return prompt, hashes


def make_choices(checked: CheckedRequest, count: int) -> list[CheckedRequest]:
    """The request of each choice: all the same but for index, name, and who gives log-probabilities of the prompt."""
    sampling = checked.sampling.copy()
    sampling.pop("prompt_logprobs", None)
    others = replace(checked, sampling=sampling)
    return [checked] + [
        replace(others, request_id=f"{checked.request_id}.{index}", choice_index=index)
        for index in range(1, count)
    ]


def make_checked(
    request: ClientRequest, model: Model, prompt: bytes, num_prompt_tokens: int
) -> CheckedRequest:
    """Fills in what the client left open."""
    seed, turn_end = request.sampling.get("seed"), request.turn_end
    return CheckedRequest(
        request_id=request.request_id or make_request_id(request.id_prefix),
        model=model.name,
        prompt=prompt,
        num_prompt_tokens=num_prompt_tokens,
        max_tokens=1 if request.pooling else validation.resolve_max_tokens(request, num_prompt_tokens, model),
        seed=secrets.randbits(64) if seed is None else seed,
        sampling=request.sampling,
        priority=request.priority,
        tenant=request.tenant,
        key_id=request.key_id,
        cache_salt=request.cache_salt,
        operation=request.operation,
        pooling=request.pooling,
        reasoning=request.reasoning,
        names=request.names,
        turn_end=turn_end if turn_end is not None and turn_end < model.vocab_size else None,
    )
