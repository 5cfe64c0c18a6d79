"""How much memory the prompts of open requests hold (docs/liveness.md, W1)."""

from __future__ import annotations

from frontend_svc.requests.block_hashes import BlockHashes
from frontend_svc.requests.request import CheckedRequest
from signalbox.errors import RequestTooLargeError, limit_reached

OPEN_RETRY_S = 1.0
"""Nobody knows when a request ends."""
BYTES_PER_ID = 36
"""What a token id of a list takes: a number and a reference to it."""


class OpenBytes:
    """Prompts, the names of their blocks, forms and lists of allowed tokens. The choices of one call share them, so
    they count once."""

    def __init__(self, limit: int) -> None:
        self.num_bytes = 0
        self._limit = limit
        self._shares: dict[int, list[int]] = {}
        """How many requests hold a prompt, and the bytes that it counts for, by the prompt's identity."""

    def enter(self, request: CheckedRequest, hashes: BlockHashes | None) -> None:
        """Raises ResourceExhaustedError when there is no room now, RequestTooLargeError when there never is."""
        share = self._shares.get(id(request.prompt))
        if share is not None:
            share[0] += 1
            return
        size = size_of(request, hashes)
        if size > self._limit:
            raise RequestTooLargeError(
                f"the request holds {size} bytes, more than max_open_bytes, {self._limit}"
            )
        if self.num_bytes + size > self._limit:
            held = f"open requests hold {self.num_bytes} of {self._limit} bytes here"
            raise limit_reached(f"max_open_bytes: {held}, and {size} more are asked for", OPEN_RETRY_S)
        self._shares[id(request.prompt)] = [1, size]
        self.num_bytes += size

    def leave(self, request: CheckedRequest) -> None:
        """A request that has entered has ended."""
        share = self._shares[id(request.prompt)]
        share[0] -= 1
        if not share[0]:
            self.num_bytes -= share[1]
            del self._shares[id(request.prompt)]


def size_of(request: CheckedRequest, hashes: BlockHashes | None) -> int:
    """What is held until a request ends, apart from its output."""
    form = request.sampling.get("structured_output")
    num_form = 0 if form is None else len(form.text) + sum(map(len, form.choices))
    num_allowed = BYTES_PER_ID * len(request.sampling.get("allowed_token_ids", ()))
    return len(request.prompt) + num_form + num_allowed + (hashes.num_bytes if hashes else 0)
