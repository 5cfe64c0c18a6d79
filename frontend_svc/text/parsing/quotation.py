"""Knows of text that arrives in pieces whether it has just opened a quotation, or is within code."""

from __future__ import annotations


class Quotation:
    """A mark that closes a quotation quotes nothing: a call may stand right behind `"Bonn"`."""

    def __init__(self) -> None:
        self.in_fence = False
        """A block of code was opened with three backticks and is not closed."""
        self.in_code = False
        """Code was opened with one backtick, and neither was it closed nor has the paragraph ended."""
        self._num_backticks = 0
        """Length of the run that the text ends with."""
        self._is_odd = False
        """This line has an odd number of double quotes."""
        self._tail = ""
        """The last two characters."""

    @property
    def is_opened(self) -> bool:
        """The text ends with a mark that opens a quotation."""
        match self._tail[-1:]:
            case "`":
                return self.in_fence if self._num_backticks > 2 else not self.in_code
            case '"':
                return self._is_odd
            case "'":
                before = self._tail[:-1]
                return not before or before.isspace() or before in "`\"'([{<=:,"
        return False

    def feed(self, text: str) -> None:
        """More text, not empty."""
        if "`" in text or self._num_backticks or self.in_code:
            self._count_backticks(text)
        line = text.rpartition("\n")
        odd = bool(line[2].count('"') % 2)
        self._is_odd = odd if line[1] else self._is_odd is not odd
        self._tail = (self._tail + text)[-2:]

    def restart(self) -> None:
        """What follows stands behind a call."""
        self.in_code = self._is_odd = False
        self._tail = ""

    def _count_backticks(self, text: str) -> None:
        last = self._tail[-1:]
        for character in text:
            if character == "`":
                self._num_backticks += 1
                if self._num_backticks == 3:
                    self.in_fence = not self.in_fence
            else:
                if self._num_backticks == 1:
                    self.in_code = not self.in_code
                self._num_backticks = 0
                if character == last == "\n":
                    self.in_code = False
            last = character
