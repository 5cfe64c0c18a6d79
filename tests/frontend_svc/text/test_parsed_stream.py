"""Tokens of an output become text, reasoning and calls: tags by their tokens, stop strings in text alone."""

from __future__ import annotations

import pytest
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as FastTokenizer

from frontend_svc.text.certain import Certain
from frontend_svc.text.model_language import find_language
from frontend_svc.text.parsed_stream import ParsedStream
from frontend_svc.text.parsing.language import Language, ParserPlan
from frontend_svc.text.text_stream import TextOptions
from frontend_svc.text.tokenizer import Tokenizer
from tests.downloads import vocabulary
from tests.parsing.reading import Found, collect

TOOLS = {"f": {"type": "object"}}
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'


@pytest.fixture(scope="module")
def small() -> Tokenizer:
    """A vocabulary of single bytes, with the tags of Qwen3 and a special token that no parser wants."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    fast = FastTokenizer(models.BPE({character: i for i, character in enumerate(alphabet)}, []))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    fast.decoder = decoders.ByteLevel()
    fast.add_special_tokens([AddedToken("<|other|>", special=True)])
    for tag in ("<think>", "</think>", "<tool_call>", "</tool_call>"):
        fast.add_tokens([AddedToken(tag, special=False)])
    return Tokenizer(fast, fast.to_str().encode(), {}, None)


def plan_of(tokenizer: Tokenizer, *, tools: str = "hermes", max_calls: int = 0) -> ParserPlan:
    language = find_language(tokenizer, "auto", tools)
    plan = language.plan("", TOOLS, max_calls=max_calls)
    assert plan is not None
    return plan


def spelled(tokenizer: Tokenizer, text: str) -> list[int]:
    """The text without tags of one token."""
    return [token for character in text for token in tokenizer.fast.encode(character).ids]


def read(stream: ParsedStream, ids: list[int], step: int) -> tuple[Found, list[Certain]]:
    parts = []
    for start in range(0, len(ids), step):
        parts.append(stream.push(ids[start : start + step]))
        if parts[-1].found is not None:
            break
    else:
        parts.append(stream.flush())
    return collect([event for part in parts for event in part.events]), parts


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_tags_are_tokens_and_what_spells_them_is_text(small: Tokenizer, step: int) -> None:
    """LM2, LM4."""
    encode = small.fast.encode
    ids = encode("<think>so<|other|> ").ids + spelled(small, f"</think>{CALL}") + encode("</think>").ids
    ids += spelled(small, f"größe {CALL}") + encode(CALL).ids
    found, parts = read(ParsedStream(small, (), plan_of(small)), ids, step)
    assert found.reasoning == f"so </think>{CALL}"
    assert found.content == f"größe {CALL}" and found.calls == [("f", '{"a": 1}')]
    counted = sum(part.num_reasoning_tokens for part in parts)
    assert counted == len(encode("so<|other|> ").ids) + len(spelled(small, f"</think>{CALL}"))
    assert "".join(part.text for part in parts) == found.content


def test_half_a_character_does_not_cross_a_tag(small: Tokenizer) -> None:
    """LM2: what came before the tag is told, and what comes behind it begins anew."""
    half = spelled(small, "ö")[:1]
    ids = small.fast.encode("<think>").ids + half + small.fast.encode("</think>ö").ids
    for step in (1, 100):
        found, _ = read(ParsedStream(small, (), plan_of(small)), ids, step)
        assert (found.reasoning, found.content) == ("\ufffd", "ö")


@pytest.mark.parametrize("keep", [False, True])
def test_stop_strings_end_text_alone(small: Tokenizer, keep: bool) -> None:
    """LM7."""
    call = CALL.replace("1", '"STOP"')
    ids = small.fast.encode(f"<think>STOP</think>ST{call}a STOP b").ids
    stream = ParsedStream(small, ["STOP"], plan_of(small), TextOptions(keep_stop=keep))
    found, parts = read(stream, ids, 1)
    assert found.reasoning == "STOP" and found.calls == [("f", '{"a": "STOP"}')]
    assert found.content == "STa" + (" STOP" if keep else " ")
    assert parts[-1].found is not None and parts[-1].found.stop == "STOP"


@pytest.mark.parametrize(
    ("written", "stop", "content", "num_tokens"),
    [
        ("one\n\ntwo", "\n\n", "one", 5),
        ("one \n\n", "\n\n", "one ", 6),
        ("one\n", "e\n", "on", 4),
        ("<think>a\n\nb</think>\n\none\n\n", "\n\n", "one", 13),
        (" \n\n", "\n\n", " ", 3),
        (f"one\n{CALL}\n\ntwo\n\n", "\n\n", "two", 0),
    ],
)
def test_a_stop_string_of_space_ends_the_output_at_once(
    small: Tokenizer, written: str, stop: str, content: str, num_tokens: int
) -> None:
    """LM7: space is held back only as long as it completes no stop string; line ends ahead of text are no text."""
    ids = small.fast.encode(written).ids
    found, parts = read(ParsedStream(small, [stop], plan_of(small)), ids, 1)
    assert parts[-1].found is not None and parts[-1].found.stop == stop
    assert len(parts) == (num_tokens or len(ids))
    assert found.content == ("one" + content if found.calls else content)


def test_tokens_of_text_within_reasoning_count_as_reasoning() -> None:
    """LM2: so does a special token that is kept as text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    fast = FastTokenizer(models.BPE({character: i for i, character in enumerate(alphabet)}, []))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    fast.decoder = decoders.ByteLevel()
    fast.add_special_tokens([AddedToken("｜DSML｜", special=True)])
    tokenizer = Tokenizer(fast, fast.to_str().encode(), {}, None)
    language = Language("deepseek_v4", "deepseek_v4", {"｜DSML｜": len(alphabet)})
    plan = language.plan("", TOOLS, reasons=True)
    assert plan is not None
    found, parts = read(ParsedStream(tokenizer, (), plan), fast.encode("a｜DSML｜b").ids, 1)
    assert found.reasoning == "a｜DSML｜b" and sum(part.num_reasoning_tokens for part in parts) == 3


def test_a_second_call_ends_the_output(small: Tokenizer) -> None:
    """LM10."""
    stream = ParsedStream(small, (), plan_of(small, max_calls=1))
    found, parts = read(stream, small.fast.encode(f"{CALL}\n{CALL}more").ids, 1)
    assert found.calls == [("f", '{"a": 1}')] and not found.content
    assert parts[-1].found is not None and parts[-1].found.stop == ""


def real(name: str) -> Tokenizer:
    source = vocabulary(name)
    return Tokenizer(FastTokenizer.from_buffer(source), source, {}, None)


@pytest.mark.slow
def test_the_vocabulary_of_gpt_oss() -> None:
    """LM2, LM8: the output that used to come out as `analysisUser says hi.assistantfinalHello!`."""
    tokenizer = real("gptoss")
    language = find_language(tokenizer, "auto", "auto")
    assert (language.reasoning, language.tools) == ("openai_gptoss", "openai")
    written = (
        "<|channel|>analysis<|message|>User says hi.<|end|><|start|>assistant<|channel|>commentary to=functions.f "
        '<|constrain|>json<|message|>{"a": 1}<|call|><|start|>assistant<|channel|>final<|message|>Hello!<|return|>'
    )
    found = real_output(tokenizer, language, written)
    assert (found.reasoning, found.content) == ("User says hi.", "Hello!")
    assert found.calls == [("f", '{"a": 1}')]


@pytest.mark.slow
def test_the_vocabulary_of_qwen3() -> None:
    """LM2, LM8."""
    tokenizer = real("qwen3")
    language = find_language(tokenizer, "auto", "hermes")
    assert language.reasoning == "qwen3"
    found = real_output(tokenizer, language, f"<think>\nhm 🚂\n</think>\n\nwell.\n{CALL}<|im_end|>")
    assert (found.reasoning, found.content, found.calls) == ("hm 🚂", "well.", [("f", '{"a": 1}')])


def real_output(tokenizer: Tokenizer, language: Language, written: str) -> Found:
    """The same, one token at a time and whole."""
    ids = tokenizer.fast.encode(written, add_special_tokens=False).ids
    plan = language.plan("", TOOLS)
    assert plan is not None
    founds = [read(ParsedStream(tokenizer, (), plan), ids, step)[0] for step in (1, len(ids))]
    assert (founds[0].content, founds[0].calls) == (founds[1].content, founds[1].calls)
    return founds[0]


def test_what_may_begin_a_stop_string_is_told_ahead_of_one_call_too_many(small: Tokenizer) -> None:
    """LM7, LM10."""
    plan = find_language(small, "none", "hermes").plan("", TOOLS, max_calls=1)
    assert plan is not None
    stream = ParsedStream(small, ["STOP"], plan)
    certain = stream.push(small.fast.encode(f"{CALL}ST{CALL}").ids)
    assert (certain.text, certain.found and certain.found.stop) == ("ST", "")
