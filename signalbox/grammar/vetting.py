"""Verdicts on forms, from a process of their own that a hostile form can hang or crash without harm."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path
from typing import NamedTuple

from signalbox.grammar.form import MAX_FORM_BYTES, Form, FormError
from signalbox.grammar.limits import FormLimits
from signalbox.grammar.token_rules import NO_RULES, TokenRules
from signalbox.runtime.start.interpreter import module_command

MAX_VERDICTS = 256
CPU_S = 2.0
"""Processor time that a form may take: a schema of 5 kB takes milliseconds."""
WALL_S = 20.0
"""Seconds that a form may take on a busy machine, where whoever runs already goes first; then it can be tried again."""


class Question(NamedTuple):
    """The key of a verdict: a form and the token rules that apply beside it."""

    form: Form
    rules: bytes
    """Digest of the rules that hold beside the form; empty: there are none."""


class Vetter:
    """Any thread may ask; forms are tried one after another. Verdicts are remembered by the form's content, refusals
    too."""

    def __init__(
        self,
        tokenizer: Path,
        limits: FormLimits,
        *,
        vocab_size: int | None = None,
        eos_token_ids: Sequence[int] = (),
    ) -> None:
        """tokenizer: path of tokenizer.json; vocab_size and eos_token_ids as in `compilation.load_tokenizer`."""
        self._command = module_command("signalbox.grammar.vetter", str(tokenizer))
        self._command += [f"--cpu-s={CPU_S}", f"--wall-s={WALL_S}"]
        self._command.append("--limits=" + ",".join(map(str, astuple(limits))))
        if vocab_size is not None:
            self._command.append(f"--vocab-size={vocab_size}")
        if eos_token_ids:
            self._command += ["--eos", *map(str, eos_token_ids)]
        self._process: subprocess.Popen[bytes] | None = None
        self._asking = threading.Lock()
        self._verdicts: OrderedDict[Question, str | FormError] = OrderedDict()
        self._remembering = threading.Lock()
        self._closed = False

    def recall(self, form: Form, rules: TokenRules = NO_RULES) -> str | None:
        """The grammar of a form that was vetted lately; None: not known. Raises FormError if it was refused."""
        question = _question(form, rules)
        with self._remembering:
            verdict = self._verdicts.get(question)
            if verdict is None:
                return None
            self._verdicts.move_to_end(question)
        if isinstance(verdict, FormError):
            raise FormError(str(verdict))
        return verdict

    def vet(self, form: Form, rules: TokenRules = NO_RULES) -> str:
        """The grammar for `compile_grammar`. Takes milliseconds, up to `WALL_S` for each form ahead. Raises FormError
        for a form that cannot be followed, or not under `rules`; TimeoutError if the machine is too busy to tell,
        RuntimeError if the process cannot be used."""
        check_size(form)
        known = self.recall(form, rules)
        if known is not None:
            return known
        with self._asking:
            known = self.recall(form, rules)  # whoever was ahead may have asked the same
            if known is not None:
                return known
            verdict = self._ask(form, rules)
        with self._remembering:
            self._verdicts[_question(form, rules)] = verdict
            if len(self._verdicts) > MAX_VERDICTS:
                self._verdicts.popitem(last=False)
        if isinstance(verdict, FormError):
            raise verdict
        return verdict

    def close(self) -> None:
        """Ends the process; a form that is being tried is given up."""
        self._closed = True
        process = self._process
        if process is not None:
            process.kill()
            process.wait()

    def _ask(self, form: Form, rules: TokenRules) -> str | FormError:
        process = self._running()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(b"%b\t%b\n" % (form.to_json(), rules.to_json()))
            process.stdin.flush()
        except BrokenPipeError:
            pass  # it ended before it read the form: the status below says how
        line = process.stdout.readline()
        if not line:
            return self._post_mortem(process)
        verdict = json.loads(line)
        return verdict["grammar"] if "grammar" in verdict else FormError(verdict["error"])

    def _running(self) -> subprocess.Popen[bytes]:
        if self._closed:
            raise RuntimeError("the vetter is closed")
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=-1
            )
        return self._process

    def _post_mortem(self, process: subprocess.Popen[bytes]) -> FormError:
        """What a form did that ended the process. Raises TimeoutError if it may have been the machine, RuntimeError if
        it was not the form."""
        status = process.wait()
        self._process = None
        if self._closed:
            raise RuntimeError("the vetter is closed")
        if status == -signal.SIGALRM:
            raise TimeoutError(f"it was not checked within {WALL_S:g} s: the machine is too busy")
        if status == -signal.SIGPROF:
            return FormError("cannot be followed: compiling it takes too long")
        if status in (-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS, -signal.SIGILL):
            return FormError("cannot be followed: it is nested too deeply or needs too much memory")
        raise RuntimeError(f"the process that vets forms ended with status {status}")


def _question(form: Form, rules: TokenRules) -> Question:
    return Question(form, rules.digest if rules else b"")


def check_size(form: Form) -> None:
    """Raises FormError for a form that is too large, or no text at all."""
    try:
        num_bytes = form.num_bytes
    except UnicodeEncodeError:
        raise FormError("has characters that are no valid Unicode") from None
    if num_bytes > MAX_FORM_BYTES:
        raise FormError(f"has {num_bytes} bytes, at most {MAX_FORM_BYTES} are allowed")
