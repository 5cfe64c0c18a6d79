"""Grammars that see where reasoning ends and where a call begins, compiled for a small vocabulary (LM9, LM11)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from llguidance import LLTokenizer
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as FastTokenizer

from frontend_svc.grammars.behind_reasoning import bind_form
from frontend_svc.grammars.strict_calls import strict_form
from frontend_svc.requests.request import StructuredOutput
from frontend_svc.text.parsing.harmony import TAGS
from frontend_svc.text.parsing.language import Language
from signalbox.grammar.compilation import compile_grammar, load_tokenizer
from signalbox.grammar.form import Form, FormKind
from signalbox.grammar.limits import FormLimits
from signalbox.grammar.translation import to_grammar

PLAIN = ("<think>", "</think>", "<tool_call>", "</tool_call>")
SPECIAL = (*TAGS, "<eos>")
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}
FORMS = [
    StructuredOutput(FormKind.JSON_SCHEMA, '{"type": "object", "required": ["a"]}'),
    StructuredOutput(FormKind.JSON_OBJECT),
    StructuredOutput(FormKind.REGEX, r'\{"a": \d/?\}'),
    StructuredOutput(FormKind.CHOICE, choices=('{"a": 1}', 'no "x"')),
    StructuredOutput(FormKind.GRAMMAR, 'start: "{" /[^}]*/ "}"'),
]
Follows = Callable[[StructuredOutput | None, str], bool]


@pytest.fixture(scope="module")
def fast() -> FastTokenizer:
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    fast = FastTokenizer(models.BPE({character: i for i, character in enumerate(sorted(alphabet))}, []))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    fast.decoder = decoders.ByteLevel()
    fast.add_special_tokens([AddedToken(text, special=True) for text in SPECIAL])
    fast.add_tokens([AddedToken(text, special=False) for text in PLAIN])
    return fast


@pytest.fixture(scope="module")
def follows(fast: FastTokenizer, tmp_path_factory: pytest.TempPathFactory) -> Follows:
    """Whether a whole output follows a form."""
    path: Path = tmp_path_factory.mktemp("vocabulary") / "tokenizer.json"
    fast.save(str(path))
    tokenizer: LLTokenizer = load_tokenizer(path, None, [fast.token_to_id("<eos>")])

    def follow(form: StructuredOutput | None, text: str) -> bool:
        assert form is not None
        grammar = to_grammar(Form(form.form, form.text, form.choices), tokenizer)
        matcher = compile_grammar(tokenizer, grammar, FormLimits())
        return all(matcher.consume_token(token) for token in fast.encode(text).ids) and matcher.is_accepting()

    return follow


def language(fast: FastTokenizer, reasoning: str, tools: str) -> Language:
    ids = {token.content: token_id for token_id, token in fast.get_added_tokens_decoder().items()}
    return Language(reasoning, tools, ids)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.form.value)
def test_a_form_binds_behind_the_end_of_reasoning(
    form: StructuredOutput, fast: FastTokenizer, follows: Follows
) -> None:
    """LM9: whether the prompt or the output opens the reasoning."""
    qwen = language(fast, "qwen3", "hermes")
    opened, open_ = bind_form(form, qwen, within=True), bind_form(form, qwen, within=False)
    assert follows(opened, 'so {"b": 2}</think>\n\n{"a": 1}')
    assert not follows(opened, '{"a": 1}'), "the reasoning has to end"
    assert follows(open_, '<think>\nso</think>\n\n{"a": 1}') and follows(open_, '{"a": 1}')
    assert not follows(open_, "so") and not follows(open_, "<think>so</think>so")


def test_a_form_binds_in_the_final_channel(fast: FastTokenizer, follows: Follows) -> None:
    """LM9: harmony's answers and forced calls stand in messages of their own."""
    harmony = language(fast, "openai_gptoss", "openai")
    thought = "<|channel|>analysis<|message|>hm {<|end|><|start|>assistant"
    answer, call = (
        '<|channel|>final<|message|>{"a": 1}',
        "<|channel|>commentary to=functions.f <|constrain|>json",
    )
    form = bind_form(FORMS[0], harmony, within=False)
    assert follows(form, thought + answer) and follows(form, answer) and not follows(form, '{"a": 1}')
    forced = bind_form(FORMS[0], harmony, False, {"f": SCHEMA, "g": SCHEMA})
    assert follows(forced, f'{thought}{call}<|message|>{{"a": 1}}') and not follows(forced, thought + answer)


def test_strict_calls_are_those_of_tools_that_there_are(fast: FastTokenizer, follows: Follows) -> None:
    """LM11: text is free; a call that begins follows its schema."""
    for reasoning in ("qwen3", ""):
        form = strict_form(language(fast, reasoning, "hermes"), False, {"f": SCHEMA, "g": {"type": "object"}})
        call = '<tool_call>\n{"name": "%s", "arguments": {"%s": 1}}\n</tool_call>'
        assert follows(form, "Hello { there.") and follows(form, "")
        assert follows(form, f"Hello.\n{call % ('f', 'a')}\n{call % ('g', 'b')}")
        assert not follows(form, call % ("f", "b")) and not follows(form, call % ("x", "a"))
        assert not follows(form, "<tool_call>no")
    thought = strict_form(language(fast, "qwen3", "hermes"), False, {"f": SCHEMA})
    assert follows(thought, f"<think>hm</think>\n\nHello.{call % ('f', 'a')}")


def test_strict_calls_in_harmony(fast: FastTokenizer, follows: Follows) -> None:
    """LM11."""
    form = strict_form(language(fast, "openai_gptoss", "openai"), False, {"f": SCHEMA})
    thought = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant"
    call = '<|channel|>commentary to=functions.%s <|constrain|>json<|message|>{"a": 1}'
    assert follows(form, f"{thought}<|channel|>final<|message|>Hello") and follows(form, thought + call % "f")
    assert not follows(form, thought + call % "x")


def test_nothing_is_strict_where_nobody_asks(fast: FastTokenizer) -> None:
    assert strict_form(language(fast, "qwen3", "hermes"), False, {}) is None


def test_where_the_prompt_has_opened_the_reasoning(fast: FastTokenizer) -> None:
    """LM9: by its end, or within the message that is written on; not where somebody speaks of the tag."""
    qwen = language(fast, "qwen3", "")
    assert qwen.opens_reasoning("...assistant\n<think>\n") and not qwen.opens_reasoning(
        "<think>\n\n</think>\n\n"
    )
    assert qwen.opens_reasoning("...<think>so", "<think>so") and not qwen.opens_reasoning("<think> is a tag")
