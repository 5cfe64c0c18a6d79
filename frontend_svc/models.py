"""The models that can be run now, as the scheduler's worker directory tells."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from signalbox.errors import UnavailableError, UnknownModelError
from signalbox.protocol.enums import ModelTask
from signalbox.protocol.model_identity import UNSAID, ModelIdentity

log = logging.getLogger(__name__)

MAX_IDENTITIES = 4
"""Most identities of a model that prompts are hashed for: one, and two while weights are replaced."""


@dataclass(frozen=True)
class Worker:
    """One worker of the directory."""

    worker_id: str
    instance: str
    """UUID of the worker's process."""
    address: str
    """host:port of the worker's WorkerService."""
    model: str
    max_model_len: int
    block_size: int
    max_request_tokens: int
    vocab_size: int
    tokenizer_fingerprint: str
    """Hash of the worker's tokenizer.json; empty: unknown."""
    tasks: tuple[ModelTask, ...] = ()
    """What can be asked of it; empty: it does not say."""
    identity: ModelIdentity = UNSAID


@dataclass(frozen=True)
class Model:
    """A model that is served, with the widest limits of its workers: the scheduler places where it fits."""

    name: str
    max_model_len: int
    """Longest prompt plus output, in tokens."""
    max_request_tokens: int
    """Prompt plus output that a worker's whole cache holds."""
    block_size: int
    vocab_size: int
    num_workers: int
    tasks: tuple[ModelTask, ...] = ()
    """What can be asked of one of its workers at least; empty: not all of them say."""
    identities: tuple[bytes, ...] = (b"",)
    """Keys of its workers' identities, those of the most workers first; at most `MAX_IDENTITIES`."""

    @property
    def max_tokens(self) -> int:
        """Longest prompt plus output that can run."""
        return min(self.max_model_len, self.max_request_tokens)


class ModelDirectory:
    """Which models are served, and by which workers."""

    def __init__(self, *, tokenizer_fingerprint: str = "", served_model_name: str = "") -> None:
        """An empty fingerprint fits every worker; an empty name serves every model. Of several names, joined by commas,
        the first is the one that workers have, and the others mean it."""
        self._fingerprint = tokenizer_fingerprint
        self._served_model_name, *further = [name.strip() for name in served_model_name.split(",")]
        self._further_names = tuple(name for name in further if name)
        self._workers: tuple[Worker, ...] = ()
        self._identities: dict[str, ModelIdentity] = {}
        self._misfits: set[str] = set()
        self._models: dict[str, Model] = {}
        self._known: dict[str, Model] = {}
        """Each model as it was last served."""
        self._logged: set[str] = set()

    @property
    def workers(self) -> tuple[Worker, ...]:
        """The workers whose models are served."""
        return self._workers

    @property
    def models(self) -> list[Model]:
        """Served models that have a worker, once for each of their names."""
        models = list(self._models.values())
        return models + [replace(model, name=name) for model in models for name in self._further_names]

    def replace(self, workers: Iterable[Worker]) -> None:
        """Takes a whole new directory."""
        workers = tuple(workers)
        self._identities = {worker.worker_id: worker.identity for worker in workers}
        self._misfits = {worker.worker_id for worker in workers if not self._fits(worker)}
        self._workers = tuple(worker for worker in workers if self._is_served(worker))
        by_name: dict[str, list[Worker]] = {}
        for worker in self._workers:
            by_name.setdefault(worker.model, []).append(worker)
        self._models = {name: _join(name, group) for name, group in by_name.items()}
        self._known.update(self._models)

    def is_misfit(self, worker_id: str) -> bool:
        """The worker has another tokenizer than ours: its tokens are not our text."""
        return worker_id in self._misfits

    def identity_of(self, worker_id: str) -> ModelIdentity:
        """What the results of that worker depend on."""
        return self._identities.get(worker_id, UNSAID)

    def resolve(self, name: str) -> Model:
        """The model of that name, by the name that its workers have; an empty name is the only model. One that has no
        worker now is as it was last served: its workers may have to find a new scheduler, which says how long requests
        wait for them (F6).

        Raises UnknownModelError, or UnavailableError when the model has never had a worker here.
        """
        models = self._models or self._known
        if not name and len(models) == 1:
            return next(iter(models.values()))
        if name in self._further_names:
            name = self._served_model_name
        if name in self._known:
            return self._known[name]
        if not models or not (name or self._models):
            raise UnavailableError("no worker is attached" + (f" for the model {name!r}" if name else ""))
        served = ", ".join(sorted({*models, *self._further_names}))
        if not name:
            raise UnknownModelError(f"several models are served, name one of {served}", field="model")
        raise UnknownModelError(f"the model {name!r} is not served; served are {served}", field="model")

    def _is_served(self, worker: Worker) -> bool:
        named = not self._served_model_name or worker.model == self._served_model_name
        return named and worker.worker_id not in self._misfits

    def _fits(self, worker: Worker) -> bool:
        fits = not self._fingerprint or worker.tokenizer_fingerprint in ("", self._fingerprint)
        if not fits and worker.instance not in self._logged:
            self._logged.add(worker.instance)
            log.warning("worker %s has another tokenizer and is not served", worker.worker_id)
        return fits


def _join(name: str, workers: list[Worker]) -> Model:
    return Model(
        name=name,
        max_model_len=max(worker.max_model_len for worker in workers),
        max_request_tokens=max(worker.max_request_tokens for worker in workers),
        block_size=workers[0].block_size,
        vocab_size=min(worker.vocab_size for worker in workers),
        num_workers=len(workers),
        tasks=tuple(sorted({task for worker in workers for task in worker.tasks}))
        if all(worker.tasks for worker in workers)
        else (),
        identities=_identities(workers),
    )


def _identities(workers: list[Worker]) -> tuple[bytes, ...]:
    counts = Counter(worker.identity.key for worker in workers)
    return tuple(sorted(counts, key=lambda key: (-counts[key], key))[:MAX_IDENTITIES])
