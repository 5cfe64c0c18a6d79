"""The output of one request, parsed: tokens in, events and the stop string out."""

from __future__ import annotations

from collections.abc import Sequence

from frontend_svc.text.certain import Certain
from frontend_svc.text.parsing.events import Event, Text, join_events
from frontend_svc.text.parsing.language import ParserPlan
from frontend_svc.text.stop_strings import Found, StopStrings
from frontend_svc.text.tagged_detokenizer import TaggedDetokenizer
from frontend_svc.text.text_stream import PLAIN, TextOptions
from frontend_svc.text.tokenizer import Tokenizer


class ParsedStream:
    """Stop strings are looked for in text for the user: neither reasoning nor the arguments of calls end by one."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        stops: Sequence[str],
        plan: ParserPlan,
        options: TextOptions = PLAIN,
    ) -> None:
        self._keep_stop = options.keep_stop
        self._end_tokens = options.unread_tokens - plan.tags.keys()
        kept = dict(plan.kept)
        if options.with_special:  # but for those that the parser reads as tags
            kept |= {
                token: text for text, token in tokenizer.special_tokens.items() if token not in plan.tags
            }
        self._detokenizer = TaggedDetokenizer(tokenizer, plan.tags, kept)
        self._parser = plan.make()
        self._stops = StopStrings(tuple(stops)) if stops else None
        if stops:
            self._parser.watch(stops)

    def push(self, token_ids: Sequence[int]) -> Certain:
        """What became certain with these tokens."""
        events: list[Event] = []
        found = None
        num_reasoning = 0
        places: list[int] = []
        for count, token_id in enumerate(token_ids, 1):
            was_reasoning = self._parser.in_reasoning
            pieces = self._detokenizer.push((token_id,)) if token_id not in self._end_tokens else []
            parsed = self._parser.push(pieces) if pieces else ()
            if was_reasoning or self._parser.in_reasoning:
                places.append(count - 1)
                if was_reasoning and self._parser.in_reasoning and not self._detokenizer.is_tag(token_id):
                    num_reasoning += 1
            if parsed and (stop := self._pass(parsed, events)):
                found = Found(stop, count)
                break
            if self._parser.is_complete:
                self._release(events)
                found = Found("", count)
                break
        return _certain(events, found, num_reasoning, places)

    def flush(self, *, is_whole: bool = False) -> Certain:
        """What was held back, when no more tokens come."""
        events: list[Event] = []
        parsed = self._parser.push(self._detokenizer.flush()) + self._parser.flush(is_whole=is_whole)
        stop = self._pass(parsed, events)
        if not stop:
            self._release(events)
        return _certain(events, Found(stop) if stop else None)

    def _pass(self, parsed: Sequence[Event], events: list[Event]) -> str:
        """Adds to `events` what no stop string cuts off; returns the stop string that is complete, if one is."""
        if self._stops is None:
            events += parsed
            return ""
        for event in parsed:
            if not isinstance(event, Text):
                self._release(events)
                events.append(event)
                continue
            certain, stop = self._stops.push(event.text)
            events.append(Text(certain + (stop or "") if self._keep_stop else certain))
            if stop is not None:
                return stop
        return ""

    def _release(self, events: list[Event]) -> None:
        """What may have begun a stop string has not."""
        if self._stops is not None:
            events.append(Text(self._stops.flush()))


def _certain(
    events: Sequence[Event], found: Found | None, num_reasoning_tokens: int = 0, places: Sequence[int] = ()
) -> Certain:
    joined = join_events(events) if len(events) > 1 else events
    text = "".join(event.text for event in joined if isinstance(event, Text))
    return Certain(text, found, joined, num_reasoning_tokens, places)
