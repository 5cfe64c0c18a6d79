"""Two logs and the scheduler's words come in any interleaving: nothing is lost, repeated or made up (HO10, HO11)."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from frontend_svc.links import outputs
from frontend_svc.requests.request import Sampling
from signalbox.v1 import generation_pb2
from tests.frontend_svc.helpers import make_logprobs
from tests.frontend_svc.requests.test_sessions import Recorder, make_request, make_table
from tests.frontend_svc.scripted_cluster import Row, make_batch

WORKERS = ("a", "b", "c")
STOP = generation_pb2.FINISH_REASON_STOP
PROMPT_LOGPROBS = [make_logprobs(1), make_logprobs(2)]


@dataclass
class Log:
    """What one worker has said to the frontend, as its outbound log keeps it."""

    rows: list[Row] = field(default_factory=list)
    num_read: int = 0
    """Rows that the frontend has taken."""
    num_acknowledged: int = 0


class Ring:
    """A request that is handed over at will, as HO3 to HO11 have it; the frontend reads whatever it reads next."""

    def __init__(self) -> None:
        self.recorder = Recorder()
        self.table = make_table(self.recorder)
        sampling = Sampling(logprobs=0, prompt_logprobs=0)
        self.session = self.table.open(make_request(sampling=sampling))
        self.session.submitted = True
        self.logs = {worker_id: Log() for worker_id in WORKERS}
        self.words: list[tuple[int, str]] = [(0, "a")]
        """Of the scheduler, on the way to the frontend."""
        self.holder, self.leg, self.last_leg = "a", 0, 0
        self.num_tokens = 0
        self.say(Row(1, 0, prompt_logprobs=PROMPT_LOGPROBS))
        self.token_ids: list[int] = []
        self.logprobs: list[generation_pb2.TokenLogprobs] = []
        self.prompt_logprobs: list[generation_pb2.TokenLogprobs] = []

    def say(self, row: Row) -> None:
        self.logs[self.holder].rows.append(row)

    # ---- what may happen

    def make_token(self) -> None:
        token = 100 + self.num_tokens
        self.say(Row(1, self.num_tokens, [token], logprobs=[make_logprobs(token)], leg=self.leg))
        self.num_tokens += 1

    def hand_over(self, target: str) -> None:
        """The tail is what the source's log keeps of the request."""
        self._announce(target)
        log = self.logs[self.holder]
        tail = log.rows[log.num_acknowledged :]
        self.holder, self.leg = target, self.last_leg
        for row in tail:
            self.say(Row(**{**vars(row), "leg": self.leg}))

    def fail_ahead_of_freeze(self, target: str) -> None:
        self._announce(target)

    def fail_behind_freeze(self, target: str) -> None:
        self._announce(target)
        self._announce(self.holder)
        self.leg = self.last_leg

    def _announce(self, worker_id: str) -> None:
        self.last_leg += 1
        self.words.append((self.last_leg, worker_id))

    def read_word(self) -> None:
        if self.words:
            leg, worker_id = self.words.pop(0)
            self.session.on_placed(1, worker_id, 0, leg=leg)

    def lose_words(self) -> None:
        """The link to the scheduler breaks; its answer to the next hello says how it stands."""
        self.words = [(self.leg, self.holder)]

    def read_log(self, worker_id: str) -> None:
        log = self.logs[worker_id]
        if log.num_read < len(log.rows):
            batch = make_batch(log.num_read + 1, [log.rows[log.num_read]])
            log.num_read += 1
            outputs.feed(batch, self.table, 1.0, worker_id)

    def acknowledge(self, worker_id: str) -> None:
        self.logs[worker_id].num_acknowledged = self.logs[worker_id].num_read

    def read_client(self) -> None:
        if self.session.has_news:
            delta = self.session.take_delta()
            self.token_ids += delta.token_ids
            self.logprobs += delta.logprobs
            self.prompt_logprobs += delta.prompt_logprobs

    def end(self) -> None:
        self.say(Row(1, self.num_tokens, reason=STOP, leg=self.leg))


targets = st.sampled_from(WORKERS)
events = st.one_of(
    st.tuples(st.just("make_token")),
    st.tuples(st.just("read_word")),
    st.tuples(st.just("read_client")),
    st.tuples(st.just("lose_words")),
    st.tuples(st.sampled_from(["read_log", "acknowledge", "read_log"]), targets),
    st.tuples(
        st.sampled_from(["hand_over", "hand_over", "fail_ahead_of_freeze", "fail_behind_freeze"]), targets
    ),
)
reads = st.sampled_from(["word", *WORKERS])


@settings(max_examples=400, deadline=None)
@given(st.lists(events, max_size=60), st.lists(reads, max_size=60))
def test_logs_join_without_a_hole_and_without_a_loss(
    history: list[tuple[str, ...]], last_reads: list[str]
) -> None:
    """HO10, HO11: whatever is read before the end, and in whatever order the rest is."""
    ring = Ring()
    for kind, *given_to in history:
        if given_to == [ring.holder] and kind not in ("read_log", "acknowledge"):
            continue
        getattr(ring, kind)(*given_to)
        ring.table.check_integrity()
        expected = list(range(100, 100 + len(ring.session.output)))
        assert list(ring.session.output) == expected
    ring.end()
    for read in [*last_reads, *(["word", *WORKERS] * 200)]:
        if read == "word":
            ring.read_word()
        else:
            ring.read_log(read)
    assert ring.session.ended and len(ring.recorder.ended) == 1
    ring.read_client()
    tokens = list(range(100, 100 + ring.num_tokens))
    assert ring.recorder.losses == [] and ring.session.attempt == 1
    assert ring.token_ids == list(ring.session.output) == tokens
    assert ring.logprobs == [make_logprobs(token) for token in tokens]
    assert ring.prompt_logprobs == PROMPT_LOGPROBS
    assert ring.recorder.ended[0].num_output_tokens == ring.num_tokens
