"""What happened to one request, as its client saw it."""

from __future__ import annotations

from dataclasses import dataclass, field

from signalbox.errors import SignalboxError, code_of


@dataclass(slots=True)
class Record:
    """Times are of time.perf_counter, in seconds. A link fills it in while the request runs."""

    intended_at: float
    """When it was to be sent: latencies count from here, so that a client or server that is behind does not hide it."""
    num_prompt_tokens: int
    sent_at: float = 0.0
    arrivals: list[float] = field(default_factory=list)
    """When each message with output came."""
    counts: list[int] = field(default_factory=list)
    """Output tokens of each of these messages."""
    num_output_tokens: int = 0
    """As the server counts them at the end."""
    ended_at: float = 0.0
    error: str = ""
    """Code of what made it fail (`UnavailableError`, `http_429`); empty: it did not."""
    error_message: str = ""

    def fail(self, error: SignalboxError) -> None:
        """The request failed by an error of ours."""
        self.error, self.error_message = code_of(error), error.message

    @property
    def succeeded(self) -> bool:
        """It ended well and made output."""
        return not self.error and bool(self.arrivals)

    @property
    def ttft_s(self) -> float:
        """Time to first token."""
        return self.arrivals[0] - self.intended_at

    @property
    def e2e_s(self) -> float:
        """Seconds from intended sending to the end."""
        return self.ended_at - self.intended_at

    @property
    def tpot_s(self) -> float | None:
        """Time per output token behind the first; None when there is no second one."""
        later = self.num_output_tokens - 1
        return (self.arrivals[-1] - self.arrivals[0]) / later if later > 0 else None

    def gaps_s(self) -> list[float]:
        """Seconds between each two messages with output, which mostly carry one token each."""
        return [later - earlier for earlier, later in zip(self.arrivals, self.arrivals[1:], strict=False)]
