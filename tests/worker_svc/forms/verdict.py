"""What is right about the end of a pair, by other means than those that made it."""

from __future__ import annotations

import json
import re

import jsonschema

from frontend_svc.requests.request import StructuredOutput
from signalbox.errors import code_of, status_of
from signalbox.grammar.form import FormKind
from signalbox.protocol.enums import FinishReason
from tests.worker_svc.forms.bench import Bench, Ended
from tests.worker_svc.forms.pairs import END_THINK


def kind_of(ended: Ended) -> str:
    """A row for the table of ends."""
    if ended.error is not None:
        when = "refused" if ended.delta is None else "failed"
        return f"{when} {status_of(ended.error).http.value} {code_of(ended.error)}"
    assert ended.delta is not None and ended.delta.finished is not None
    return f"ended {ended.delta.finished.reason.name}"


def wrong(ended: Ended, bench: Bench) -> str:
    """What must not be; empty: nothing."""
    if ended.error is not None:
        status = status_of(ended.error).http.value
        return f"{status}: {ended.error.message}" if status >= 500 else _wrong_refusal(ended)
    assert ended.delta is not None and ended.delta.finished is not None
    return _wrong_tokens(ended, bench) or _wrong_form(ended, bench)


def _wrong_refusal(ended: Ended) -> str:
    """A refusal names the form's field, or another one of the request's."""
    assert ended.error is not None
    names = {ended.pair.form.field, *ended.pair.told, "thinking_token_budget"}
    return "" if ended.error.field in names else f"{ended.error.field!r} is named: {ended.error.message}"


def _wrong_tokens(ended: Ended, bench: Bench) -> str:
    """Tokens that the fields forbid."""
    assert ended.delta is not None
    sampling, tokens = ended.pair.sampling, ended.delta.token_ids
    allowed = sampling.get("allowed_token_ids")
    if allowed:
        return "".join(f"token {token} is not allowed; " for token in tokens if token not in allowed)
    text = bench.tokenizer.fast.decode(tokens, skip_special_tokens=False)
    for word in sampling.get("bad_words", ()):
        ids = bench.tokenizer.fast.encode(word.lstrip(), add_special_tokens=False).ids
        if any(tokens[place : place + len(ids)] == ids for place in range(len(tokens))):
            return f"the bad word {word!r} is in {text!r}"
    return ""


def _wrong_form(ended: Ended, bench: Bench) -> str:
    """A whole output that does not satisfy its form."""
    delta, pair = ended.delta, ended.pair
    assert delta is not None and delta.finished is not None
    if delta.finished.reason is FinishReason.DEAD_END:
        return "" if pair.form.field in delta.finished.dead_end else "nobody says why no token could come"
    cut_early = "stop_token_ids" in pair.sampling or "stop" in pair.sampling
    if delta.finished.reason is not FinishReason.STOP or cut_early:
        return ""
    text = delta.text.split(END_THINK)[-1] if pair.is_behind_reasoning else delta.text
    # Up to two lines may stand between reasoning and form; they may as well be the form's own.
    texts = (
        [text[count:] for count in range(3) if text[:count] == "\n" * count]
        if pair.is_behind_reasoning
        else [text]
    )
    return "" if any(_satisfies(pair.form, each) for each in texts) else f"{text!r} does not satisfy the form"


def _satisfies(form: StructuredOutput, text: str) -> bool:
    """Whether a text does; of grammars and tagged structures nobody else knows."""
    match form.form:
        case FormKind.REGEX:
            return bool(re.fullmatch(form.text, text))
        case FormKind.CHOICE:
            return text in form.choices
        case FormKind.JSON_OBJECT:
            return isinstance(json.loads(text), dict)
        case FormKind.JSON_SCHEMA:
            try:
                jsonschema.validate(json.loads(text), json.loads(form.text))
            except (ValueError, jsonschema.ValidationError):
                return False
    return True
