"""What the streams ask for: one of each kind, again and again with other prompts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

SAMPLED = {"temperature": 0.8, "top_k": 5}
"""How streams are sampled that are no greedy ones. A prompt that is computed again gives log-probabilities that differ
in the sixth digit. A number that falls so close to the border between two tokens gives another one, and without
`top_k` there are 4,096 borders: then about one stream in a hundred differs behind a move, and no judge could tell it
from a mistake."""
PROMPTS = (
    "def read_json(path):\n",
    "class Queue:\n    def __init__(self, maxsize=0):\n",
    "def quicksort(",
    "import os\nimport sys\n\ndef main(argv):\n",
    "class Node:\n    def __repr__(self):\n",
    "def parse_header(line):\n    key,",
    "async def fetch(url, timeout):\n",
    "def test_split(self):\n        self.assertEqual(",
)
SLOW_PAUSE_S = 4.0


@dataclass(frozen=True)
class Ask:
    """One request, the same every time."""

    kind: str
    face: str
    """http: server-sent events read by hand; sdk: OpenAI's; grpc: our client."""
    body: dict[str, Any]
    """Of /v1/completions or /v1/chat/completions; of grpc: prompt and sampling."""
    silent_s: float = 0.0
    """Its client stops reading for so long, once, so that its request is paused."""
    pace_s: float = 0.0
    """Its client waits for so long before each read of some KiB."""

    leaves: bool = False
    """Its client hangs up in the middle."""

    @property
    def is_slow(self) -> bool:
        """Its client does not read as fast as output comes."""
        return self.silent_s > 0 or self.pace_s > 0

    @property
    def path(self) -> str:
        """Of an HTTP request."""
        return "/v1/chat/completions" if "messages" in self.body else "/v1/completions"


def make_asks(count: int, num_tokens: int) -> list[Ask]:
    """`count` requests of about `num_tokens` output tokens, all kinds in turn."""
    return [_MAKERS[index % len(_MAKERS)](index, num_tokens) for index in range(count)]


def make_sim_asks(count: int, num_tokens: int) -> list[Ask]:
    """Those that the sim runner can make: it knows no log-probabilities, forms and temperatures."""
    return [_SIM_MAKERS[index % len(_SIM_MAKERS)](index, num_tokens) for index in range(count)]


def _prompt(index: int) -> str:
    return f"# {index}\n{PROMPTS[index % len(PROMPTS)]}"


def _body(index: int, num_tokens: int, **more: Any) -> dict[str, Any]:
    body = {"model": "demo", "prompt": _prompt(index), "max_tokens": num_tokens, "ignore_eos": True}
    return body | {"stream": True, "stream_options": {"include_usage": True}, "temperature": 0} | more


def _chat(body: dict[str, Any]) -> dict[str, Any]:
    prompt = body.pop("prompt")
    return body | {"messages": [{"role": "user", "content": prompt}]}


def _greedy(index: int, num_tokens: int) -> Ask:
    return Ask("greedy", "http", _body(index, num_tokens))


def _seeded(index: int, num_tokens: int) -> Ask:
    return Ask("seeded", "http", _body(index, num_tokens, seed=index, **SAMPLED))


def _penalties(index: int, num_tokens: int) -> Ask:
    more = {"repetition_penalty": 1.2, "frequency_penalty": 0.3, "presence_penalty": 0.2, "logprobs": 3}
    return Ask("penalties, logprobs", "http", _body(index, num_tokens, **more))


def _regex(index: int, num_tokens: int) -> Ask:
    words = num_tokens // 6
    form = {"guided_regex": rf"(([a-z]{{4,9}}|[0-9]{{2,5}}), ){{{words}}}end", "ignore_eos": False}
    return Ask("regex", "http", _body(index, num_tokens, seed=index, **SAMPLED, **form))


def _json(index: int, num_tokens: int) -> Ask:
    items = {"type": "array", "items": {"type": "integer"}, "minItems": num_tokens // 5}
    schema: dict[str, Any] = {"type": "object", "properties": {"sizes": items}, "required": ["sizes"]}
    schema["additionalProperties"] = False
    form = {"response_format": {"type": "json_schema", "json_schema": {"name": "sizes", "schema": schema}}}
    body = _body(index, num_tokens, seed=index, ignore_eos=False, **SAMPLED, **form)
    return Ask("JSON schema", "http", _chat(body))


def _two(index: int, num_tokens: int) -> Ask:
    return Ask("n=2", "http", _body(index, num_tokens, n=2, seed=index, **SAMPLED))


def _stop(index: int, num_tokens: int) -> Ask:
    stop = ["# the end", "raise Key", ".append(", "None)"]
    return Ask("stop strings", "http", _body(index, num_tokens, seed=index, stop=stop, **SAMPLED))


def _slow(index: int, num_tokens: int) -> Ask:
    body = _body(index, num_tokens, seed=index, logprobs=5, **SAMPLED)
    body["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
    return Ask("slow reader", "http", body, silent_s=SLOW_PAUSE_S)


def _leaver(index: int, num_tokens: int) -> Ask:
    return Ask("hangs up", "http", _body(index, num_tokens, seed=index, **SAMPLED), leaves=True)


def _chat_logprobs(index: int, num_tokens: int) -> Ask:
    body = _body(index, num_tokens, seed=index, logprobs=True, top_logprobs=2, **SAMPLED)
    return Ask("chat, SDK", "sdk", _chat(body))


def _grpc(index: int, num_tokens: int) -> Ask:
    sampling = {"max_tokens": num_tokens, "seed": index, "ignore_eos": True, **SAMPLED}
    return Ask("gRPC", "grpc", {"prompt": _prompt(index), "sampling": sampling})


_MAKERS = (_greedy, _seeded, _penalties, _regex, _json, _two, _stop, _slow, _chat_logprobs, _grpc, _leaver)


def _plain(make: Callable[[int, int], Ask]) -> Callable[[int, int], Ask]:
    """Without what the sim runner refuses."""

    def plain(index: int, num_tokens: int) -> Ask:
        ask = make(index, num_tokens)
        options = ask.body.get("sampling", ask.body)
        for name in ("temperature", "top_k", "seed", "logprobs", "top_logprobs"):
            options.pop(name, None)
        options["temperature"] = 0
        return ask

    return plain


_SIM_MAKERS = tuple(map(_plain, (_greedy, _two, _stop, _slow, _chat_logprobs, _grpc, _leaver)))
