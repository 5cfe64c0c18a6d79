"""Random requests for the two faces: mostly what a client may ask, with odd values put in anywhere."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

ODD_NUMBERS = st.sampled_from(
    [-1, 0, 1, 2, 2**31, 2**32, 2**63, 2**64, 2**200, -(2**63), 0.5, 1e308, float("nan")]
)
TEXTS = st.text(max_size=12) | st.sampled_from(
    ["", " ", "\ud800", "\x00", "größe 🚂", "x" * 300, "<|im_start|>"]
)
ODD = st.recursive(
    st.none() | st.booleans() | ODD_NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
JSON = "application/json"
UNIT = st.floats(0, 1)
TOKENS = st.lists(st.integers(0, 4095), min_size=1, max_size=8)
WORDS = st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=3)
ROLES = st.sampled_from(["system", "user", "assistant", "developer", "tool", "function"])

SAMPLING: dict[str, st.SearchStrategy[Any]] = {
    "max_tokens": st.integers(1, 24),
    "temperature": UNIT,
    "top_p": UNIT,
    "top_k": st.integers(0, 50),
    "min_p": UNIT,
    "seed": st.integers(-(2**63), 2**64 - 1),
    "n": st.integers(1, 3),
    "min_tokens": st.integers(0, 4),
    "stop": TEXTS | WORDS,
    "stop_token_ids": TOKENS,
    "bad_words": WORDS,
    "ignore_eos": st.booleans(),
    "repetition_penalty": st.floats(0.1, 2),
    "frequency_penalty": st.floats(-2, 2),
    "presence_penalty": st.floats(-2, 2),
    "logit_bias": st.dictionaries(st.integers(0, 4095).map(str), st.floats(-100, 100), max_size=3),
    "priority": st.integers(-5, 5),
    "cache_salt": TEXTS,
    "user": TEXTS,
    "include_stop_str_in_output": st.booleans(),
    "skip_special_tokens": st.booleans(),
    "return_token_ids": st.booleans(),
    "return_tokens_as_token_ids": st.booleans(),
    "truncation_side": st.sampled_from(["left", "right"]),
    "allowed_token_ids": TOKENS,
    "logprob_token_ids": TOKENS,
    "truncate_prompt_tokens": st.integers(-1, 9),
    "request_id": TEXTS,
    "use_beam_search": st.just(False) | ODD,
    "length_penalty": st.just(1.0) | ODD,
    "session_id": ODD,
    "a_field_of_tomorrow": st.none() | ODD,
}
LABELS: dict[str, st.SearchStrategy[Any]] = {
    "model": st.sampled_from(["demo", "other"]),
    "stream": st.booleans(),
    "stream_options": st.fixed_dictionaries(
        {}, optional={"include_usage": st.booleans(), "continuous_usage_stats": st.booleans()}
    ),
    "metadata": st.dictionaries(TEXTS, TEXTS, max_size=2),
    "response_format": st.sampled_from([{"type": "text"}, {"type": "json_object"}, {"type": "xml"}]),
    "store": st.booleans(),
}
MESSAGE = st.fixed_dictionaries(
    {
        "role": ROLES,
        "content": TEXTS | st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": TEXTS})),
    },
    optional={
        "name": TEXTS,
        "tool_call_id": TEXTS,
        "tool_calls": ODD,
        "function_call": st.none() | ODD,
        "reasoning": TEXTS,
        "refusal": TEXTS,
        "annotations": ODD,
        "unknown": st.none() | ODD,
    },
)
ITEM_KINDS = st.sampled_from(
    ["message", "reasoning", "function_call", "function_call_output", "custom_tool_call", "item_reference"]
)
ITEM = st.fixed_dictionaries(
    {},
    optional={
        "type": ITEM_KINDS,
        "role": ROLES,
        "content": TEXTS | ODD,
        "call_id": TEXTS,
        "name": TEXTS,
        "arguments": TEXTS,
        "output": TEXTS | ODD,
        "input": TEXTS,
        "encrypted_content": TEXTS,
    },
) | st.fixed_dictionaries({"role": ROLES, "content": TEXTS})
TOOL_KINDS = st.sampled_from(["function", "custom", "namespace", "web_search"])
BLOCK = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "thinking", "tool_use", "tool_result", "image", "server_tool_use"])},
    optional={
        "text": TEXTS,
        "thinking": TEXTS,
        "signature": TEXTS,
        "id": TEXTS,
        "name": TEXTS,
        "input": st.dictionaries(TEXTS, ODD, max_size=2),
        "tool_use_id": TEXTS,
        "content": TEXTS | ODD,
    },
)
TURN = st.fixed_dictionaries(
    {
        "role": ROLES,
        "content": TEXTS
        | st.lists(BLOCK | st.fixed_dictionaries({"type": st.just("text"), "text": TEXTS}), max_size=3),
    }
)
COUNT = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["tool_uses", "input_tokens", "thinking_turns", "all"]),
        "value": st.integers(-1, 3),
    }
)
EDIT = st.fixed_dictionaries(
    {"type": st.sampled_from(["clear_tool_uses_20250919", "clear_thinking_20251015", "compact_20260112"])},
    optional={
        "trigger": COUNT,
        "keep": COUNT | st.just("all"),
        "clear_at_least": COUNT,
        "clear_tool_inputs": st.booleans() | WORDS,
        "exclude_tools": WORDS,
    },
)
EDITS = st.fixed_dictionaries({}, optional={"edits": st.lists(EDIT, max_size=2)}) | ODD
PROMPTS = TEXTS | TOKENS | st.lists(TEXTS, max_size=3) | st.lists(TOKENS, max_size=3)

DOCUMENT = st.fixed_dictionaries({"text": TEXTS}, optional={"title": TEXTS})
POOLED: dict[str, st.SearchStrategy[Any]] = {
    "model": LABELS["model"],
    "truncate_prompt_tokens": st.integers(-1, 9),
    "add_special_tokens": st.booleans(),
    "use_activation": st.booleans(),
    "softmax": st.booleans(),
    "instruction": TEXTS,
    "priority": st.integers(-5, 5),
    "cache_salt": TEXTS,
    "request_id": TEXTS,
    "user": TEXTS,
}
GOOD_FILE, ODD_FILE = "file of lines that can be asked", "file of anything"
"""Stand for ids that the server gives."""

ENDPOINTS: dict[str, tuple[dict[str, st.SearchStrategy[Any]], dict[str, st.SearchStrategy[Any]]]] = {
    "/v1/completions": (
        {"prompt": PROMPTS},
        SAMPLING
        | LABELS
        | {
            "echo": st.booleans(),
            "best_of": st.integers(1, 4),
            "logprobs": st.integers(0, 5),
            "prompt_logprobs": st.integers(0, 5),
            "suffix": TEXTS,
        },
    ),
    "/v1/chat/completions": (
        {"messages": st.lists(MESSAGE, min_size=1, max_size=3)},
        SAMPLING
        | LABELS
        | {
            "logprobs": st.booleans(),
            "top_logprobs": st.integers(0, 5),
            "tools": ODD,
            "tool_choice": st.sampled_from(["none", "auto", "required"]),
            "max_completion_tokens": st.integers(1, 24),
            "chat_template_kwargs": st.dictionaries(
                TEXTS | st.sampled_from(["enable_thinking", "messages", "bos_token", "range"]),
                ODD,
                max_size=2,
            ),
            "reasoning_effort": st.sampled_from(["none", "low", "x"]),
            "enable_thinking": st.booleans(),
            "documents": st.lists(st.dictionaries(TEXTS, ODD, max_size=2), max_size=2),
            "add_generation_prompt": st.booleans(),
            "continue_final_message": st.booleans(),
            "add_special_tokens": st.booleans(),
            "echo": st.booleans(),
            "return_prompt_text": st.booleans(),
            "include_reasoning": st.booleans(),
        },
    ),
    "/v1/responses": (
        {"input": TEXTS | st.lists(ITEM, max_size=3)},
        SAMPLING
        | {
            "max_output_tokens": st.integers(1, 24),
            "instructions": TEXTS,
            "temperature": UNIT,
            "top_p": UNIT,
            "stream": st.booleans(),
            "text": st.sampled_from([{"format": {"type": "text"}}, {"format": {"type": "xml"}}, {}]),
            "metadata": LABELS["metadata"],
            "store": st.booleans(),
            "tools": st.lists(st.fixed_dictionaries({"type": TOOL_KINDS, "name": TEXTS}) | ODD, max_size=2),
            "tool_choice": st.sampled_from(["none", "auto", "required"]) | ODD,
            "reasoning": st.sampled_from([None, {"effort": "none"}, {"effort": "low"}]),
            "include": st.sampled_from([[], ["reasoning.encrypted_content"]]),
        },
    ),
    "/v1/messages": (
        {"messages": st.lists(TURN, max_size=3), "max_tokens": st.integers(1, 24)},
        {
            "system": TEXTS | st.lists(BLOCK, max_size=2),
            "stop_sequences": WORDS,
            "temperature": UNIT,
            "top_k": st.integers(0, 50),
            "stream": st.booleans(),
            "tools": st.lists(st.fixed_dictionaries({"name": TEXTS, "input_schema": ODD}) | ODD, max_size=2),
            "tool_choice": st.sampled_from([{"type": "any"}, {"type": "auto"}, {"type": "none"}]) | ODD,
            "thinking": st.sampled_from([{"type": "adaptive"}, {"type": "disabled"}]) | ODD,
            "metadata": ODD,
            "context_management": EDITS,
        },
    ),
    "/v1/messages/count_tokens": (
        {"messages": st.lists(TURN, max_size=3)},
        {"system": TEXTS, "context_management": EDITS},
    ),
    "/v1/embeddings": (
        {"input": PROMPTS},
        {"dimensions": st.integers(1, 9), "encoding_format": st.sampled_from(["float", "base64", "int8"])},
    ),
    "/tokenize": (
        {"prompt": TEXTS},
        {"return_token_strs": st.booleans(), "add_special_tokens": st.booleans()},
    ),
    "/detokenize": ({"tokens": TOKENS | st.lists(st.integers(0, 9999), max_size=4)}, {}),
    **{
        path: (
            {"query": TEXTS, "documents": st.lists(TEXTS | DOCUMENT, max_size=3)},
            POOLED
            | {
                "top_n": st.integers(-1, 4),
                "return_documents": st.booleans(),
                "max_tokens_per_doc": st.integers(-1, 9),
                "rank_fields": WORDS,
                "max_chunks_per_doc": st.none() | st.integers(0, 3),
            },
        )
        for path in ("/rerank", "/v2/rerank")
    },
    "/score": (
        {"text_1": TEXTS | st.lists(TEXTS, max_size=3), "text_2": TEXTS | st.lists(TEXTS, max_size=3)},
        POOLED | {"queries": TEXTS, "items": st.lists(TEXTS, max_size=2)},
    ),
    "/classify": ({"input": PROMPTS}, POOLED),
    "/pooling": (
        {"input": PROMPTS},
        POOLED
        | {
            "task": st.sampled_from(["embed", "classify", "token_embed", "score", "none"]),
            "encoding_format": st.sampled_from(["float", "base64", "bytes"]),
            "dimensions": st.integers(-1, 9),
            "normalize": st.booleans(),
        },
    ),
    "/v2/embed": (
        {"texts": st.lists(TEXTS, max_size=3)},
        {
            "input_type": st.sampled_from(["search_query", "clustering", "x"]),
            "embedding_types": st.lists(st.sampled_from(["float", "base64", "int8"]), max_size=2),
            "output_dimension": st.integers(-1, 9),
            "truncate": st.sampled_from(["END", "NONE", "START"]),
            "max_tokens": st.integers(-1, 9),
        },
    ),
    "/v1/batches": (
        {
            "input_file_id": st.sampled_from([GOOD_FILE, ODD_FILE]),
            "endpoint": st.sampled_from(["/v1/completions", "/v1/completions", "/v1/files"]),
            "completion_window": st.sampled_from(["24h", "24h", "1m", "0h", "9" * 30 + "d"]),
        },
        {
            "metadata": LABELS["metadata"],
            "output_expires_after": st.fixed_dictionaries(
                {"anchor": st.sampled_from(["created_at", "x"]), "seconds": st.integers(0, 10**7)}
            ),
        },
    ),
}
LINES = tuple(
    json.dumps({"custom_id": str(number), "method": "POST", "url": "/v1/completions", "body": body}).encode()
    for number, body in enumerate(({"model": "demo", "prompt": "hi", "max_tokens": 3}, {"prompt": 5}, {}))
)
PARTS = st.sampled_from(
    [
        b'name="purpose"\r\n\r\nbatch',
        b'name="purpose"\r\n\r\nuser_data',
        b'name="file"; filename="a.jsonl"\r\n\r\n' + b"\n".join(LINES),
        b'name="file"; filename="../../a\x00"\r\nContent-Type: text/plain\r\n\r\n\xff\x00',
        b'name="file"\r\n\r\nno file',
        b'name="expires_after[anchor]"\r\n\r\ncreated_at',
        b'name="expires_after[seconds]"\r\n\r\n3600',
        b'name="' + b"x" * 5000 + b'"\r\n\r\n',
        b'name="a"\r\nX: ' + b"y" * 9000 + b"\r\n\r\nb",
        b'name="a"\r\nContent-Transfer-Encoding: base64\r\n\r\nYQ==',
        b"filename*=utf-8''%ff%00; name*=utf-8''%66ile\r\n\r\nx",
        b"\r\n\r\n",
    ]
)
FORM = "multipart/form-data; boundary="
FORMS = st.sampled_from(
    [FORM + "b", FORM + "b", FORM + "b", FORM, FORM + "b" * 80, FORM + "é", "multipart/mixed"]
)


@st.composite
def http_requests(draw: st.DrawFn) -> tuple[str, bytes, str]:
    """Path, body and its content type."""
    path = draw(st.sampled_from([*ENDPOINTS, "/v1/files"]))
    if draw(st.integers(0, 30)) == 0:
        return path, draw(st.binary(max_size=40)), JSON
    if path not in ENDPOINTS:
        return path, draw(form_bodies()), draw(FORMS)
    required, optional = ENDPOINTS[path]
    body = {name: draw(strategy) for name, strategy in required.items()}
    names = draw(st.lists(st.sampled_from([*optional, "nonsense"]), max_size=4, unique=True))
    body |= {name: draw(optional.get(name, ODD)) for name in names}
    if draw(st.integers(0, 3)) == 0:
        body[draw(st.sampled_from([*required, *optional]))] = draw(ODD)
    return path, json.dumps(body).encode(), JSON


@st.composite
def form_bodies(draw: st.DrawFn) -> bytes:
    """A form with a file; half of them lack their end, or have bytes that are others."""
    parts = draw(st.lists(PARTS, min_size=1, max_size=4))
    end = draw(st.sampled_from([b"--b--\r\n", b"--b--\r\n", b"--b--\r\n", b"--b", b"", b"--b--tail"]))
    body = b"".join(b"--b\r\nContent-Disposition: form-data; " + part + b"\r\n" for part in parts) + end
    for place, byte in draw(
        st.lists(st.tuples(st.integers(0, len(body) - 1), st.integers(0, 255)), max_size=1)
    ):
        body = body[:place] + bytes((byte,)) + body[place + 1 :]
    return body


U32 = st.integers(0, 30) | st.sampled_from([2**31, 2**32 - 1])
FLOATS = st.floats(width=32)
PROTO_TEXTS = st.text(max_size=12)
GRPC_SAMPLING: dict[str, st.SearchStrategy[Any]] = {
    "temperature": UNIT | FLOATS,
    "top_k": U32,
    "top_p": UNIT | FLOATS,
    "min_p": UNIT | FLOATS,
    "seed": st.integers(0, 2**64 - 1),
    "max_tokens": st.integers(1, 24) | U32,
    "min_tokens": U32,
    "stop_token_ids": st.lists(U32, max_size=3),
    "allowed_token_ids": st.lists(U32, max_size=3),
    "logprob_token_ids": st.lists(U32, max_size=3),
    "stop": st.lists(PROTO_TEXTS, max_size=3),
    "ignore_eos": st.booleans(),
    "logprobs": U32,
    "prompt_logprobs": U32,
    "repetition_penalty": st.floats(0.5, 2, width=32) | FLOATS,
    "frequency_penalty": FLOATS,
    "presence_penalty": FLOATS,
    "logit_bias": st.dictionaries(U32, FLOATS, max_size=3),
    "bad_words": st.lists(PROTO_TEXTS, max_size=3),
}
GRPC_REQUESTS = st.fixed_dictionaries(
    {"sampling": st.fixed_dictionaries({}, optional=GRPC_SAMPLING)},
    optional={
        "model": st.sampled_from(["", "demo", "other"]),
        "text": PROTO_TEXTS,
        "token_ids": st.fixed_dictionaries({"ids": st.lists(U32, max_size=8)}),
        "request_id": st.sampled_from(["a", "b", "a\n", "x" * 129]),
        "priority": st.integers(-(2**31), 2**31 - 1) | st.just(1),
        "cache_salt": PROTO_TEXTS,
        "n": st.integers(0, 3) | U32,
    },
)
