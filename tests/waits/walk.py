"""Finds where coroutines and threads can stand until another party acts (docs/design/waits.md)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

Function = ast.FunctionDef | ast.AsyncFunctionDef
BLOCKING = {
    *(
        "wait",
        "wait_for",
        "accept",
        "acquire",
        "select",
        "communicate",
        "synchronize",
        "flock",
        "lockf",
        "waitpid",
    ),
    *("recv", "recv_into", "recvmsg", "recvmsg_into", "recv_fds", "sendall", "sendmsg"),
    *("connect", "create_connection", "do_handshake", "getresponse"),
}
"""Calls that block a thread, by their last name, whatever they are given."""
CONNECTS = {"create_connection", "urlopen", "TCPStore"}
"""Those that are called without a receiver."""
STARTS_A_PROCESS = frozenset({"run", "check_call", "check_output"})
"""Calls of `subprocess` that return when the process has ended."""
MAKES_TASKS = frozenset({"create_task", "ensure_future", "shield", "gather", "wait", "wait_for"})
"""Calls of asyncio that take what is awaited: what stands in their arguments is theirs."""
SECONDS = re.compile(r"(_s|_S|timeout)\b|monotonic")
"""An argument of `join` that is a time: it is a thread's, and no string's."""
IN_THREADS = frozenset({"to_thread", "run_in_executor"})
"""Await code of ours that a thread runs: what waits there is found there."""
STREAMS = frozenset(
    ["read", "write", "wait", "get", "put", "join", "acquire", "drain", "done_writing", "anext", "stream"]
)
"""Names that are waits of grpc.aio and asyncio, though services have coroutines of these names, too."""


@dataclass(frozen=True, order=True)
class Wait:
    """One place where code waits."""

    path: str
    function: str
    """With its classes and outer functions; empty: the module."""
    call: str
    """What is waited for, as the code says it, without arguments."""
    line: int = 0


def find_waits(root: Path, folders: Iterable[str], passed_on: frozenset[str]) -> Iterator[Wait]:
    """All waits of these folders. `passed_on`: callables that are handed in and awaited as code of ours is."""
    trees = {
        path.relative_to(root).as_posix(): ast.parse(path.read_text())
        for folder in folders
        for path in sorted((root / folder).rglob("*.py"))
    }
    coroutines = {
        node.name
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.AsyncFunctionDef)
    }
    for path, tree in trees.items():
        walk = _Walk(path, frozenset(coroutines | IN_THREADS), passed_on, _context_variables(tree))
        walk.visit(tree)
        yield from walk.waits


def _context_variables(tree: ast.Module) -> frozenset[str]:
    """Their `get` does not wait."""
    made = [node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    return frozenset(
        target.id
        for node in made
        if isinstance(node.value, ast.Call) and _name(node.value.func) == "ContextVar"
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    )


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Subscript):
        return _name(function.value)
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


class _Walk(ast.NodeVisitor):
    """Collects the waits of one module."""

    def __init__(
        self,
        path: str,
        coroutines: frozenset[str],
        passed_on: frozenset[str],
        context_variables: frozenset[str],
    ) -> None:
        self.waits: list[Wait] = []
        self._path = path
        self._coroutines = coroutines
        self._passed_on = passed_on
        self._context_variables = context_variables
        self._scope: list[str] = []
        self._functions: list[Function | ast.Lambda] = []
        self._loops: list[ast.While] = []

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._within(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._within(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._within(node)

    def _within(self, node: ast.ClassDef | Function) -> None:
        loops, self._loops = self._loops, []
        self._scope.append(node.name)
        if not isinstance(node, ast.ClassDef):
            self._functions.append(node)
        self.generic_visit(node)
        if not isinstance(node, ast.ClassDef):
            self._functions.pop()
        self._scope.pop()
        self._loops = loops

    def visit_While(self, node: ast.While) -> None:
        self._loops.append(node)
        self.generic_visit(node)
        self._loops.pop()

    def visit_Await(self, node: ast.Await) -> None:
        awaited = node.value
        if not isinstance(awaited, ast.Call):
            self._note(awaited)
            self.visit(awaited)
        elif _name(awaited.func) == "sleep":
            self._sleep(awaited)
        else:
            if not self._is_ours(awaited.func):
                self._note(awaited.func)
            self._arguments(awaited)

    def visit_AsyncFor(self, node: ast.AsyncFor) -> None:
        iterated = node.iter
        if not isinstance(iterated, ast.Call):
            self._note(iterated)
        elif not self._is_ours(iterated.func):
            self._note(iterated.func)
        self.generic_visit(node)

    def visit_AsyncWith(self, node: ast.AsyncWith) -> None:
        for item in node.items:
            if not isinstance(item.context_expr, ast.Call):
                self._note(item.context_expr)
            elif _name(item.context_expr.func) == "TaskGroup":
                self._note(item.context_expr.func)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if _name(node.func) == "sleep":
            self._sleep(node)
        elif self._blocks(node):
            self._note(node.func)
        self._arguments(node)

    def _arguments(self, node: ast.Call) -> None:
        self.visit(node.func)
        takes_awaited = _name(node.func) in MAKES_TASKS
        for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
            if takes_awaited and isinstance(argument, ast.Call):
                self._arguments(argument)
            else:
                self.visit(argument)

    def _is_ours(self, called: ast.expr) -> bool:
        """It is a coroutine of the services, whose own waits are found."""
        name = _name(called)
        if name[:1].isupper():
            return False  # a call of gRPC
        is_own_method = isinstance(called, ast.Attribute) and _name(called.value) == "self"
        return name in self._passed_on or (
            name in self._coroutines and (is_own_method or name not in STREAMS)
        )

    def _blocks(self, node: ast.Call) -> bool:
        name, receiver = _name(node.func), node.func.value if isinstance(node.func, ast.Attribute) else None
        if receiver is None:
            return name in CONNECTS
        if name in STARTS_A_PROCESS:
            return _name(receiver) == "subprocess"
        if name == "join":
            return not node.args or (len(node.args) == 1 and bool(SECONDS.search(ast.unparse(node.args[0]))))
        if name in ("read", "poll"):
            return bool(node.args) and _name(receiver) in ("os", "poller")
        if name == "result":
            return isinstance(self._functions[-1] if self._functions else None, ast.FunctionDef)
        if name == "get":
            return not node.args and _name(receiver) not in self._context_variables
        return name in BLOCKING and not ("LOCK_NB" in ast.unparse(node) or "WNOHANG" in ast.unparse(node))

    def _sleep(self, node: ast.Call) -> None:
        """A sleep is the clock's. One in a loop that something ends is a look, again and again, at that."""
        if self._loops and _can_end(self._loops[-1]):
            self._note(node.func)
        self._arguments(node)

    def _note(self, waited: ast.expr) -> None:
        called = ast.unparse(waited)
        self.waits.append(Wait(self._path, ".".join(self._scope), called, waited.lineno))


def _can_end(loop: ast.While) -> bool:
    if not isinstance(loop.test, ast.Constant):
        return True
    return any(isinstance(node, ast.Return | ast.Break) for node in ast.walk(loop))
