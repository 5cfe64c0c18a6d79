"""Which identities of a model prompts are hashed for, and which one an output is of: I7 to I9."""

from __future__ import annotations

from array import array

from frontend_svc.links.submission import make_names
from frontend_svc.models import MAX_IDENTITIES, ModelDirectory, Worker
from frontend_svc.requests.block_hashes import BlockHashes
from frontend_svc.requests.sessions.output_origin import OutputOrigin
from signalbox.protocol.enums import LossCause
from signalbox.protocol.hash_chain import root_hash
from signalbox.protocol.model_identity import UNSAID, ModelIdentity
from tests.frontend_svc.requests.test_sessions import Recorder, make_request, make_table

OLD, NEW = ModelIdentity("old"), ModelIdentity("new")


def make_worker(name: str, identity: ModelIdentity) -> Worker:
    return Worker(name, name, "a:1", "m", 64, 4, 64, 100, "", identity=identity)


def test_parts_of_an_identity_do_not_run_into_each_other() -> None:
    """I7."""
    identities = [ModelIdentity("ab"), ModelIdentity("a", "b"), ModelIdentity("", "ab"), UNSAID]
    assert len({identity.key for identity in identities}) == 4 and not UNSAID.key


def test_an_identity_is_not_read_as_a_tenant() -> None:
    """I7."""
    key = OLD.key
    roots = {
        root_hash("m"),
        root_hash("m", identity=key),
        root_hash("m", tenant="t"),
        root_hash("m", tenant="t", identity=key),
    }
    assert len(roots) == 4


def test_prompts_are_hashed_for_the_identities_of_the_most_workers() -> None:
    """I8."""
    directory = ModelDirectory()
    crowd = [make_worker(f"w{number}", ModelIdentity(str(number))) for number in range(9)]
    directory.replace([*crowd, make_worker("a", OLD), make_worker("b", NEW), make_worker("c", NEW)])
    model = directory.resolve("m")
    assert model.identities[0] == NEW.key and len(model.identities) == MAX_IDENTITIES
    assert directory.identity_of("a") == OLD and directory.identity_of("unknown") == UNSAID


def test_names_are_made_once_for_each_identity_and_go_on_with_the_output() -> None:
    """I8."""
    hashes = BlockHashes("m", "", 4, identities=(OLD.key, NEW.key))
    prompt = array("i", range(9)).tobytes()
    hashes.extend(prompt)
    longer = hashes.copy()
    old, new = make_names(longer, prompt + array("i", range(3)).tobytes())
    assert (old.identity, new.identity) == (OLD.key, NEW.key)
    assert len(old.block_hashes) == len(new.block_hashes) == 3 * 16 and old.block_hashes != new.block_hashes
    assert old.root_hash == root_hash("m", identity=OLD.key)
    assert hashes.num_bytes == 4 * 16 and longer.num_bytes == 6 * 16
    whole = BlockHashes("m", "", 4, identities=(NEW.key,))
    assert whole.extend(prompt + array("i", range(3)).tobytes())[NEW.key] == new.block_hashes


def test_the_origin_is_of_the_last_attempt_that_made_something() -> None:
    """I9."""
    origin = OutputOrigin()
    assert not origin.moves_to(OLD)
    origin.begin_attempt(0)
    assert not origin.moves_to(NEW) and origin.prior == b""
    origin.begin_attempt(3)
    assert origin.prior == NEW.key and not origin.moves_to(NEW)
    origin.begin_attempt(3)
    assert origin.moves_to(OLD) and not origin.moves_to(OLD) and origin.prior == NEW.key
    origin.begin_attempt(4)
    assert origin.prior == OLD.key


def test_a_session_says_whose_its_output_is_and_tells_when_it_goes_on_elsewhere() -> None:
    """I9."""
    recorder = Recorder()
    session = make_table(recorder).open(make_request())
    session.on_placed(session.attempt, "w1", 0, OLD)
    session.on_outputs(session.attempt, 0, (5,), (), 1.0)
    session.on_lost(session.attempt, "gone", LossCause.WORKER_GONE)
    assert session.origin.prior == OLD.key and not recorder.moves
    session.hear(0, "w2", NEW)
    assert len(recorder.moves) == 1 and "new" in recorder.moves[0]
