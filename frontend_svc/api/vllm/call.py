"""What the faces for routers of other projects share."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from google.protobuf.message import Message

from frontend_svc.api.grpc.call import Context
from frontend_svc.requests.choices import Choices
from frontend_svc.requests.events import Delta
from frontend_svc.requests.request import FREE_FORMS, StructuredOutput
from frontend_svc.requests.sessions.session import Session
from frontend_svc.services import Services
from signalbox import __version__
from signalbox.errors import CancelledError, InvalidRequestError, UnsupportedError
from signalbox.grammar.form import FormKind
from signalbox.links import rpc

VERSION = f"signalbox {__version__}"
"""What routers are told of who we are."""


async def next_deltas(choices: Choices, context: Context) -> list[tuple[int, Delta]]:
    """The next output by choice; nothing when all have ended. An error that ended one ends the call with its status;
    a cancel is no error: the routers have a finish reason for it."""
    news = await choices.next_deltas()
    for _, delta in news:
        error = None if delta.finished is None else delta.finished.error
        if error is not None and not isinstance(error, CancelledError):
            await rpc.abort(context, error)
    return news


def abort(services: Services, request_ids: Iterable[str]) -> None:
    """Cancels the open requests that their clients named so, all choices of each; others' are unknown to the caller."""
    wanted, caller = set(request_ids), services.access.caller
    for session in services.table:
        if not caller.may_cancel(session.request.tenant):
            continue
        name, is_later_choice = session.request_id, session.request.choice_index > 0
        if (name.rpartition(".")[0] if is_later_choice else name) in wanted:
            if caller.tenant != session.request.tenant:
                services.access.audit.admin(caller.key_id, f"cancel {name}", "")
            session.cancel()


def refuse_unserved(message: Message, served: Collection[str], path: str = "") -> None:
    """Raises UnsupportedError for a field that is set and not in `served`."""
    for field, _ in message.ListFields():
        if field.name not in served:
            raise UnsupportedError(f"{path}{field.name} is not supported", field=f"{path}{field.name}")


def read_form(message: Any, oneof: str, path: str) -> StructuredOutput | None:
    """The form that the output has to follow, of the `oneof` whose fields are named as ours; None: none."""
    name = message.WhichOneof(oneof)
    if name is None:
        return None
    value, field = getattr(message, name), path + name
    form = FormKind("json_schema" if name == "json" else name)
    if form is FormKind.JSON_OBJECT:
        return StructuredOutput(form, field=field) if value else None
    if form is not FormKind.CHOICE:
        if not value:
            raise InvalidRequestError(f"{field} is empty", field=field)
        return StructuredOutput(form, text=value, field=field, is_free=form in FREE_FORMS)
    choices = tuple(value.choices)
    if not choices or "" in choices:
        raise InvalidRequestError(f"{field} needs strings that are not empty", field=field)
    return StructuredOutput(form, choices=choices, field=field)


def matched_token(session: Session) -> int | None:
    """The stop token that ended a request that stopped without a stop string; None: it was the end of sequence."""
    last = session.output[-1] if session.output else None
    return last if last in session.request.sampling.get("stop_token_ids", ()) else None
