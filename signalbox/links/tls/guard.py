"""Lets only those call who may, by the role in their certificate."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NoReturn

import grpc

from signalbox.errors import AuthenticationError, PermissionDeniedError, SignalboxError, status_of
from signalbox.links.handlers import behaviour_of, remade
from signalbox.links.tls.identity import ours
from signalbox.links.tls.roles import CALLERS, DOMAIN, Role, instance_of, roles_of
from signalbox.runtime.bounded_lines import BoundedLines

logger = logging.getLogger(__name__)
Context = grpc.aio.ServicerContext[Any, Any]
MAX_NAMES_CHARS = 512
_NAMES = "x509_subject_alternative_name"


class RoleGuard(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Asks each call's certificate for its role before the handler sees a message."""

    def __init__(self, domain: str = DOMAIN, callers: Mapping[str, frozenset[Role]] = CALLERS) -> None:
        """domain: trust domain of the ring. callers: who may call a method, by its full name; a method that is not
        there nobody may."""
        self._domain, self._callers = domain, callers
        self._lines = BoundedLines()

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any
    ) -> Any:
        """The handler, behind the question."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method
        allowed = self._callers.get(method, frozenset())

        def ask(context: Context) -> None:
            try:
                check(context, method, allowed, self._domain)
            except SignalboxError as error:
                self._tell(context, method, error)
                raise

        return _guarded(handler, ask)

    def _tell(self, context: Context, method: str, error: SignalboxError) -> None:
        num_left_out = self._lines.take()
        if num_left_out is None:
            return
        fields = {
            "method": method,
            "caller": ",".join(names_of(context))[:MAX_NAMES_CHARS],
            "client": context.peer(),
            "outcome": type(error).__name__,
            "num_left_out": num_left_out,
        }
        logger.warning("call refused", extra=fields)


def names_of(context: Context) -> tuple[str, ...]:
    """The names in the certificate of a caller, in order; empty: it showed none."""
    return tuple(sorted(name.decode(errors="replace") for name in context.auth_context().get(_NAMES, ())))


def instance_in(context: Context, role: Role) -> str | None:
    """The one process of a `role` that a caller's certificate is for; None: for any, or there is none."""
    identity = ours()
    return None if identity is None else instance_of(names_of(context), role, identity.domain)


def check(context: Context, method: str, allowed: frozenset[Role], domain: str) -> None:
    """Raises AuthenticationError for a caller of no ring, PermissionDeniedError for one of another role."""
    roles = roles_of(names_of(context), domain)
    if not roles:
        raise AuthenticationError("this link needs a certificate that says a role of the ring")
    if not roles & allowed:
        wanted = " or ".join(sorted(role.value for role in allowed)) or "nobody"
        is_ = " and ".join(sorted(role.value for role in roles))
        raise PermissionDeniedError(f"{method.rpartition('/')[2]} is for {wanted}, and this caller is {is_}")


def _guarded(handler: Any, ask: Callable[[Context], None]) -> Any:
    guard = _stream if handler.response_streaming else _unary
    return remade(handler, guard(behaviour_of(handler), ask))


def _unary(behaviour: Callable[..., Awaitable[Any]], ask: Callable[[Context], None]) -> Any:
    async def call(request: Any, context: Context) -> Any:
        await _ask(ask, context)
        return await behaviour(request, context)

    return call


def _stream(behaviour: Callable[..., Any], ask: Callable[[Context], None]) -> Any:
    """Handlers of ours write by the context; those of others may be generators."""

    async def call(request: Any, context: Context) -> None:
        await _ask(ask, context)
        made = behaviour(request, context)
        if hasattr(made, "__aiter__"):
            async for message in made:
                await context.write(message)
        else:
            await made

    return call


async def _ask(ask: Callable[[Context], None], context: Context) -> None:
    try:
        ask(context)
    except SignalboxError as error:
        await _refuse(context, error)


async def _refuse(context: Context, error: SignalboxError) -> NoReturn:
    await context.abort(status_of(error).grpc, error.message)
    raise AssertionError("context.abort returned")
