"""Which models are served, and how errors tell."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from frontend_svc.models import ModelDirectory, Worker
from signalbox.errors import UnavailableError, UnknownModelError

WORKER = Worker("w", "i", "127.0.0.1:1", "toy", 64, 16, 40, 100, "ours")


def directory_of(*workers: Worker, served_model_name: str = "") -> ModelDirectory:
    directory = ModelDirectory(tokenizer_fingerprint="ours", served_model_name=served_model_name)
    directory.replace(workers)
    return directory


def test_the_only_model_needs_no_name() -> None:
    assert directory_of(WORKER).resolve("") == directory_of(WORKER).resolve("toy")


def test_limits_are_the_widest_of_the_workers() -> None:
    model = directory_of(WORKER, replace(WORKER, instance="j", max_request_tokens=64)).resolve("toy")
    assert (model.num_workers, model.max_tokens) == (2, 64)


def test_unknown_models_are_named() -> None:
    with pytest.raises(UnknownModelError, match=r"'gpt'.*toy") as caught:
        directory_of(WORKER).resolve("gpt")
    assert caught.value.field == "model"
    with pytest.raises(UnknownModelError, match="several"):
        directory_of(WORKER, replace(WORKER, model="other")).resolve("")


@pytest.mark.parametrize("others", [(), (replace(WORKER, model="other"),)])
def test_a_model_that_has_lost_its_workers_is_as_it_was(others: tuple[Worker, ...]) -> None:
    """F6: they may have to find a new scheduler, and that says how long requests wait for them. Nobody is told that
    the model is served."""
    directory = directory_of(WORKER)
    before = directory.resolve("toy")
    directory.replace(others)
    assert directory.resolve("toy") == before
    assert directory.resolve("").name == ("other" if others else "toy")
    assert "toy" not in [model.name for model in directory.models]
    with pytest.raises(UnknownModelError, match=r"'gpt'.*served are"):
        directory.resolve("gpt")


def test_without_a_worker_ever_nothing_is_known() -> None:
    for name in ("", "toy"):
        with pytest.raises(UnavailableError, match="no worker is attached"):
            directory_of().resolve(name)


def test_no_name_means_no_model_when_several_have_lost_their_workers() -> None:
    """F6: none is served, so that there is none to be named."""
    directory = directory_of(WORKER, replace(WORKER, model="other"))
    directory.replace([])
    with pytest.raises(UnavailableError, match="no worker is attached"):
        directory.resolve("")
    assert directory.resolve("other").name == "other"
    with pytest.raises(UnknownModelError, match=r"'gpt'.*not served"):
        directory.resolve("gpt")


def test_workers_with_another_tokenizer_are_not_served(caplog: pytest.LogCaptureFixture) -> None:
    stranger = replace(WORKER, worker_id="s", instance="s", tokenizer_fingerprint="theirs")
    with caplog.at_level(logging.WARNING):
        directory = directory_of(stranger, WORKER)
        directory.replace([stranger, WORKER])
    assert len(caplog.records) == 1
    assert directory.workers == (WORKER,)
    assert directory.is_misfit("s")
    assert not directory.is_misfit("w")


def test_unknown_fingerprints_fit() -> None:
    assert directory_of(replace(WORKER, tokenizer_fingerprint="")).models
    directory = ModelDirectory()
    directory.replace([WORKER])
    assert directory.models


def test_one_model_by_name() -> None:
    directory = directory_of(WORKER, replace(WORKER, model="other"), served_model_name="toy")
    assert [model.name for model in directory.models] == ["toy"]


def test_further_names_mean_the_first() -> None:
    """All are listed; what is resolved has the name that the workers have."""
    directory = directory_of(WORKER, served_model_name="toy, tiny,gpt-4o")
    assert [model.name for model in directory.models] == ["toy", "tiny", "gpt-4o"]
    assert directory.resolve("gpt-4o") == directory.resolve("toy") == directory.resolve("")
    with pytest.raises(UnknownModelError, match=r"'gpt'.*gpt-4o, tiny, toy"):
        directory.resolve("gpt")
    directory.replace([])
    assert directory.models == []
    assert directory.resolve("tiny").name == "toy"
