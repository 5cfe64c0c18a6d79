"""Refuses a form that no output can be made to follow, before its request is accepted."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from frontend_svc.requests.fair_lock import FairLock
from frontend_svc.requests.request import ClientRequest, StructuredOutput
from signalbox.errors import InternalError, InvalidRequestError, UnsupportedError, limit_reached
from signalbox.grammar.form import Form, FormError
from signalbox.grammar.limits import FormLimits
from signalbox.grammar.token_rules import NO_RULES, TokenRules
from signalbox.grammar.vetting import Vetter, check_size

MAX_WAITING = 32
"""Forms of one tenant that may wait to be vetted. They are vetted one by one, each in limited time, tenants in turns:
further ones are refused."""
RETRY_S = 1.0


class FormCheck:
    """Asks a `Vetter` beside the event loop; a form that was vetted lately takes no time."""

    def __init__(self, tokenizer: Path, eos_token_id: int | None, limits: FormLimits) -> None:
        """tokenizer: path of tokenizer.json. The process that vets is started with the first form."""
        ends = () if eos_token_id is None else (eos_token_id,)
        self._vetter = Vetter(tokenizer, limits, eos_token_ids=ends)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="form-check")
        self._lock = FairLock()
        self._num_waiting = Counter[str]()

    async def __call__(
        self,
        output: StructuredOutput,
        tenant: str = "",
        rules: TokenRules = NO_RULES,
        rule_fields: Sequence[str] = (),
    ) -> None:
        """Raises InvalidRequestError naming the field for a form that cannot be followed, or not under `rules`, which
        `rule_fields` make; ResourceExhaustedError when too many wait."""
        if output.inner is not None:
            await self(output.inner, tenant, rules if output.needs_inner else NO_RULES, rule_fields)
        form, field = Form(output.form, output.text, output.choices), output.field
        try:
            check_size(form)
            if self._vetter.recall(form) is None:
                await self._vet(form, NO_RULES, output.field, tenant)
            field = " and ".join((output.field, *rule_fields))
            if rules and self._vetter.recall(form, rules) is None:
                await self._vet(form, rules, output.field, tenant)
        except FormError as error:
            raise InvalidRequestError(f"{field} {error}", field=output.field) from None

    async def _vet(self, form: Form, rules: TokenRules, field: str, tenant: str) -> None:
        if self._num_waiting[tenant] >= MAX_WAITING:
            waiting = f"{self._num_waiting[tenant]} of {MAX_WAITING} new forms wait to be checked already"
            raise limit_reached(waiting, RETRY_S, field=field)
        self._num_waiting[tenant] += 1
        try:
            async with self._lock.hold(tenant):
                await asyncio.get_running_loop().run_in_executor(self._thread, self._vetter.vet, form, rules)
        except TimeoutError as error:
            raise limit_reached(str(error), RETRY_S, field=field) from None
        except (OSError, RuntimeError) as error:
            raise InternalError(f"{field} could not be checked: {error}", field=field) from None
        finally:
            self._num_waiting -= Counter((tenant,))  # who has none left is forgotten

    def close(self) -> None:
        """Ends the thread and the process that vet."""
        self._vetter.close()
        self._thread.shutdown(wait=False, cancel_futures=True)


def check_conflicts(request: ClientRequest) -> None:
    """Refuses what contradicts a form: the form alone says when the output may end. Raises UnsupportedError."""
    sampling = request.sampling
    if "structured_output" not in sampling:
        return
    for name, value in (
        ("min_tokens", sampling.get("min_tokens")),
        ("ignore_eos", sampling.get("ignore_eos")),
    ):
        if value:
            field, form_field = request.names.sampling_prefix + name, sampling["structured_output"].field
            raise UnsupportedError(f"{field} cannot be combined with {form_field}", field=field)


def check_reasoning(request: ClientRequest, rules: TokenRules) -> None:
    """Refuses rules that forbid what ends bounded reasoning. Raises UnsupportedError."""
    if request.reasoning is None:
        return
    ends = set(request.reasoning.end_token_ids)
    for name, is_broken in (
        ("allowed_token_ids", bool(rules.allowed) and not ends <= set(rules.allowed)),
        ("bad_words", any(len(each) == 1 and each[0] in ends for each in rules.bad_sequences)),
    ):
        if is_broken:
            field = request.names.sampling_prefix + name
            raise UnsupportedError(
                f"{field} forbids what ends the reasoning, which {request.reasoning.field} bounds",
                field=field,
            )
