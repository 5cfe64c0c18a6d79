"""The one way in: what a client asked becomes an open session, or an error before anything was submitted."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Sequence

from frontend_svc import tracing, validation
from frontend_svc.block_hashes import BlockHashes
from frontend_svc.config import Limits
from frontend_svc.generate_input import Asked, GenerateInput, Trace
from frontend_svc.models import Model, ModelDirectory
from frontend_svc.session import Session
from frontend_svc.sessions import SessionTable, make_request_id
from frontend_svc.text_stream import TextStream
from frontend_svc.tokenizer import Tokenizer
from signalbox.errors import SignalboxError, UnavailableError, UnsupportedError
from signalbox.telemetry import OFF, Span, Tracer

LONG_PROMPT_TOKENS = 4096
"""From here on hashing takes more than about half a millisecond and moves to a thread."""


class Intake:
    """Checks, tokenizes, hashes and submits requests."""

    def __init__(
        self,
        table: SessionTable,
        directory: ModelDirectory,
        tokenizer: Tokenizer | None,
        limits: Limits,
        tracer: Tracer = OFF,
    ) -> None:
        self.tokenizer = tokenizer
        self.stopping = False
        """No request is accepted any more."""
        self._table = table
        self._directory = directory
        self._limits = limits
        self._tracer = tracer

    async def open(self, asked: Asked) -> Session:
        """Raises the SignalboxError for which the request is refused."""
        span = tracing.begin(self._tracer, asked)
        try:
            return await self._open(asked, span)
        except SignalboxError as error:
            if span is not None:
                tracing.refuse(span, asked, error)
            raise

    async def _open(self, asked: Asked, span: Span | None) -> Session:
        self._check_open()
        model = self._directory.resolve(asked.model)
        validation.check_request(asked)
        validation.check_sampling(asked, self._limits, model.vocab_size)
        self._check_text(asked)
        token_ids = await self._tokenize(asked)
        if len(token_ids) < LONG_PROMPT_TOKENS:
            prompt, hashes = prepare_prompt(asked, token_ids, model)
        else:
            prompt, hashes = await asyncio.to_thread(prepare_prompt, asked, token_ids, model)
        trace = tracing.context_for_services(self._tracer, asked, span)
        given = make_input(asked, model, prompt, len(token_ids), trace)
        self._check_open()  # threads took their time
        text = TextStream(self.tokenizer, asked.sampling.stop) if self.tokenizer else None
        return self._table.open(given, text, hashes, span)

    def _check_open(self) -> None:
        if self.stopping:
            raise UnavailableError("the server is stopping")

    def _check_text(self, asked: Asked) -> None:
        if self.tokenizer is not None:
            return
        if isinstance(asked.prompt, str):
            raise UnsupportedError(
                f"{asked.prompt_field} must be token ids: this server has no tokenizer",
                field=asked.prompt_field,
            )
        if asked.sampling.stop:
            field = asked.sampling_prefix + "stop"
            raise UnsupportedError(f"{field} needs a tokenizer, which this server has not", field=field)

    async def _tokenize(self, asked: Asked) -> Sequence[int]:
        if not isinstance(asked.prompt, str):
            return asked.prompt
        assert self.tokenizer is not None
        return await self.tokenizer.encode(asked.prompt, add_special_tokens=asked.add_special_tokens)


def prepare_prompt(asked: Asked, token_ids: Sequence[int], model: Model) -> tuple[bytes, BlockHashes | None]:
    """Checks the prompt's tokens; packs and hashes them."""
    prompt = validation.check_prompt_tokens(asked, token_ids, model)
    if not model.block_size:
        return prompt, None
    hashes = BlockHashes(model.name, asked.cache_salt, model.block_size)
    hashes.extend(prompt)
    return prompt, hashes


def make_input(
    asked: Asked, model: Model, prompt: bytes, num_prompt_tokens: int, trace: Trace
) -> GenerateInput:
    """Fills in what the client left open."""
    seed = asked.sampling.seed
    return GenerateInput(
        request_id=asked.request_id or make_request_id(asked.id_prefix),
        model=model.name,
        prompt=prompt,
        num_prompt_tokens=num_prompt_tokens,
        max_tokens=validation.resolve_max_tokens(asked, num_prompt_tokens, model),
        seed=secrets.randbits(64) if seed is None else seed,
        sampling=asked.sampling,
        priority=asked.priority,
        cache_salt=asked.cache_salt,
        deadline_ms=asked.deadline_ms,
        arrival_ms=time.time_ns() // 1_000_000,
        trace=trace,
        operation=asked.operation,
    )
