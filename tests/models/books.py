"""The provider's books: each request as it saw it, and what can be read off them.

The one rule: they are kept on the provider's own clock and in its own counts, so that what the
library says of a run can be held against somebody else's word.
"""

from dataclasses import dataclass, field
from typing import Any

from trouble import Fault

__all__ = ["Books", "Served"]


@dataclass(slots=True)
class Served:
    """One request as the provider saw it. Times are readings of ``time.monotonic``."""

    number: int
    path: str
    at: float
    fingerprint: str
    body: dict[str, Any]
    headers: dict[str, str]
    fault: Fault | None
    tokens_in: int
    tokens_out: int = 0
    charged: bool = False
    ended: float | None = None
    answer: str = field(default="", repr=False)


class Books:
    """What reached a provider."""

    def __init__(self) -> None:
        self.served: list[Served] = []

    @property
    def charged(self) -> list[Served]:
        """Give the requests that were charged for."""
        return [each for each in self.served if each.charged]

    @property
    def tokens_in(self) -> int:
        """Give the tokens of the prompts that were charged for."""
        return sum(each.tokens_in for each in self.charged)

    @property
    def tokens_out(self) -> int:
        """Give the tokens of the answers that were charged for."""
        return sum(each.tokens_out for each in self.charged)

    def repeated(self) -> dict[str, list[Served]]:
        """Give the requests that came more than once, word for word, by fingerprint."""
        by: dict[str, list[Served]] = {}
        for each in self.served:
            by.setdefault(each.fingerprint, []).append(each)
        return {print_: all_ for print_, all_ in by.items() if len(all_) > 1}

    def busiest(self, window: float) -> tuple[int, int]:
        """Give the most requests, and the most tokens in and out, that began in any ``window``.

        Measured on this clock, over every stretch of that many seconds.
        """
        served = sorted(self.served, key=lambda each: each.at)
        requests = tokens = first = held = 0
        for place, each in enumerate(served):
            held += each.tokens_in + each.tokens_out
            while served[first].at <= each.at - window:
                held -= served[first].tokens_in + served[first].tokens_out
                first += 1
            requests, tokens = max(requests, place - first + 1), max(tokens, held)
        return requests, tokens
