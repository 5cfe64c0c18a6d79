"""What the bodies of these endpoints have in common."""

from __future__ import annotations

from typing import Any

from frontend_svc.api.openai.schema import Body
from frontend_svc.requests.request import ClientRequest, FieldNames, Pooling, Sampling, Trace
from frontend_svc.requests.sessions.session_table import make_request_id
from signalbox.protocol.enums import ModelTask
from signalbox.telemetry.attributes import OPERATION_EMBEDDINGS


class PoolingBody(Body):
    """Fields of all of them."""

    model: str | None = None
    truncate_prompt_tokens: int | None = None
    """Keep the first so many tokens of each prompt; -1: as many as the model takes. Unset: a longer one is refused."""
    add_special_tokens: bool | None = None
    """Whether the tokenizer puts its own tokens around texts; unset: it does."""
    use_activation: bool | None = None
    """Whether numbers of labels go through the head's activation; unset: they do."""
    activation: bool | None = None
    softmax: bool | None = None
    """Older names of `use_activation`."""
    priority: int | None = None
    cache_salt: str | None = None
    user: str | None = None
    """The client's label for its user, which nothing here reads."""
    request_id: str | None = None
    """Name of the call's first request, as X-Request-Id gives one."""

    @property
    def is_raw(self) -> bool:
        """Numbers are wanted as the head makes them."""
        named = (self.use_activation, self.activation, self.softmax)
        return next((value is False for value in named if value is not None), False)

    def make_requests(
        self,
        prompts: list[tuple[str | list[int], str | None, str]],
        task: ModelTask,
        trace: Trace,
        prefix: str,
        **fields: Any,
    ) -> list[ClientRequest]:
        """A request for each of `prompts`: text or tokens, the second part of a pair, and the field that it came in."""
        base = self.request_id or make_request_id(prefix)
        pooling = Pooling(raw=self.is_raw, task=task)
        common: dict[str, Any] = {
            "sampling": Sampling(),
            "model": self.model or "",
            "priority": self.priority or 0,
            "cache_salt": self.cache_salt or "",
            "trace": trace,
            "operation": OPERATION_EMBEDDINGS,
            "pooling": pooling,
            "truncate_prompt_tokens": self.truncate_prompt_tokens,
            "add_special_tokens": self.add_special_tokens is not False,
        }
        return [
            ClientRequest(
                prompt=prompt,
                pair=pair,
                names=FieldNames(prompt=name),
                request_id=f"{base}:{index}" if index else base,
                **(common | fields),
            )
            for index, (prompt, pair, name) in enumerate(prompts)
        ]


def usage_of(num_tokens: int) -> dict[str, Any]:
    """Tokens that were read."""
    return {
        "prompt_tokens": num_tokens,
        "total_tokens": num_tokens,
        "completion_tokens": 0,
        "prompt_tokens_details": None,
    }
