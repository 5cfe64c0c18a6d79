"""Who waits for a grammar, by form: however many want one form, another form waits for one of them only."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

from signalbox.grammar.form import Form

T = TypeVar("T")


class FormQueue(Generic[T]):
    """Entries that wait, at most one per slot. The forms take turns; entries of one form are in the order of arrival.
    Any thread may call."""

    def __init__(self) -> None:
        self._forms: OrderedDict[Form, OrderedDict[int, T]] = OrderedDict()
        """Entries by slot, none of them empty; the first form is next."""
        self._form_of: dict[int, Form] = {}
        self._changed = threading.Condition()
        self._closed = False

    def put(self, slot: int, form: Form, entry: T) -> None:
        """Adds an entry, in place of the slot's older one."""
        with self._changed:
            self._remove(slot)
            self._forms.setdefault(form, OrderedDict())[slot] = entry
            self._form_of[slot] = form
            self._changed.notify()

    def remove(self, slot: int) -> None:
        """Drops the slot's entry, if there is one."""
        with self._changed:
            self._remove(slot)

    def take(self) -> T | None:
        """Waits for the next entry and removes it; None: the queue is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._forms or self._closed)
            return None if self._closed else self._next()

    def take_now(self) -> T | None:
        """Removes the next entry without waiting; None: there is none, or the queue is closed."""
        with self._changed:
            return self._next() if self._forms and not self._closed else None

    def close(self) -> None:
        """Ends all `take`; what waits is dropped."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _next(self) -> T:
        form, entries = next(iter(self._forms.items()))
        slot, entry = next(iter(entries.items()))
        self._forms.move_to_end(form)
        self._remove(slot)
        return entry

    def _remove(self, slot: int) -> None:
        form = self._form_of.pop(slot, None)
        if form is not None:
            del self._forms[form][slot]
            if not self._forms[form]:
                del self._forms[form]
