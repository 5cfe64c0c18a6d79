"""Turns what nobody expected of a model's code while it is loaded into a refusal that names the model."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from worker_svc.runner.errors import ModelLoadError, one_line
from worker_svc.runner.model import checkpoint


@contextmanager
def refusing(path: Path, *, has_ranks: bool = False) -> Iterator[None]:
    """Makes a ModelLoadError of any other exception: it names the directory, the family, what was raised and where.

    has_ranks: other exceptions than failed assertions pass, as a collective raises them that another rank has left.
    """
    try:
        yield
    except ModelLoadError:
        raise
    except Exception as error:
        if has_ranks and not isinstance(error, AssertionError):
            raise
        family = checkpoint.read_json(path / checkpoint.CONFIG).get("model_type")
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise ModelLoadError(
            f"{path} (model_type {family!r}) cannot be served: {one_line(error)} "
            f"(in {place.name} of {Path(place.filename).name}:{place.lineno})."
        ) from error
