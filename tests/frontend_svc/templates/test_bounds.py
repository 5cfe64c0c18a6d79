"""The bounds within which chat templates run."""

from __future__ import annotations

import asyncio
import time

import pytest

from frontend_svc.templates.bounded import BoundedThreads
from frontend_svc.templates.chat_template import ChatTemplate
from frontend_svc.templates.conversation import Conversation
from frontend_svc.templates.prompts import MAX_THREADS
from signalbox.errors import InvalidRequestError
from tests.frontend_svc.templates.prompting import CONTENTS, USER, prompts_of


async def test_bounds_on_messages_and_characters() -> None:
    with pytest.raises(InvalidRequestError, match="messages has 3 messages, at most 2 are allowed"):
        await prompts_of(CONTENTS, max_messages=2).render(Conversation(USER * 3))
    with pytest.raises(InvalidRequestError, match="makes more than 10 characters"):
        await prompts_of(CONTENTS * 9, max_prompt_chars=10).render(Conversation(USER))


ENDLESS = "{% set many = range(90000) %}" + "{% for a in many %}" * 3 + "{% endfor %}" * 3


async def test_a_template_that_does_not_end_is_ended_and_the_event_loop_goes_on() -> None:
    prompts = prompts_of(ENDLESS, max_template_s=0.3)
    began = time.monotonic()
    chat = asyncio.create_task(prompts.render(Conversation(USER)))
    turns = 0
    while not chat.done():
        await asyncio.sleep(0.01)
        turns += 1
    with pytest.raises(InvalidRequestError, match=r"did not render the messages within 0.3 s"):
        await chat
    assert turns >= 3
    assert time.monotonic() - began < 20


async def test_work_that_was_given_up_gives_its_place_back() -> None:
    threads = BoundedThreads(0.2, 1)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await threads.run(lambda: ChatTemplate(ENDLESS, {}).render(USER))
        async with asyncio.timeout(20):
            while True:
                try:
                    assert await threads.run(lambda: 1) == 1
                    break
                except TimeoutError:
                    continue


async def test_more_conversations_than_threads() -> None:
    prompts = prompts_of(CONTENTS)
    rendered = await asyncio.gather(*(prompts.render(Conversation(USER)) for _ in range(5 * MAX_THREADS)))
    assert rendered == ["hi|"] * 5 * MAX_THREADS
