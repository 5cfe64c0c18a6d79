"""Which identity of the model has made a request's output."""

from __future__ import annotations

from signalbox.protocol.model_identity import UNSAID, ModelIdentity


class OutputOrigin:
    """The identities behind one session's output, over its attempts."""

    def __init__(self) -> None:
        self.prior = b""
        """Key of the identity that made the last of the prior output; empty: there is none, or it is not known."""
        self._current = UNSAID
        self._num_prior_tokens = 0

    def moves_to(self, identity: ModelIdentity) -> bool:
        """A worker of this identity has the current attempt. Whether the output goes on under another one than it was
        begun with; true once."""
        if identity == self._current:
            return False
        self._current = identity
        return self._num_prior_tokens > 0 and self.prior not in (b"", identity.key)

    def begin_attempt(self, num_output_tokens: int) -> None:
        """The current attempt is over; so many tokens have been made in all."""
        if num_output_tokens > self._num_prior_tokens:
            self.prior, self._num_prior_tokens = self._current.key, num_output_tokens
        self._current = UNSAID
