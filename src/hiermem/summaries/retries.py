"""Decides how often a model is asked for a text that it keeps refusing, and when it is left alone.

::

    two requests -> stand-in -> one request after 1 h -> 4 h -> 16 h -> 64 h -> none

An attempt is a call whose answer was not taken, or whose failure says something of the text
(``calls.failures.is_attempt``). Any other call without an answer counts only if an earlier one
had none either and the model has answered other calls since. So an outage costs no attempt.
Attempts are counted by the node's input hash, which covers the model's name and the prompt's
version. So a fork or a rebuild with the same inputs continues the count, and another model, prompt
or input begins a new one.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from hiermem.summaries.assess import PROMPTS
from hiermem.types import Node

#: The kind of the records that hold a count; their scope is the session, their key the input hash.
RETRY: Final = "retry"
#: After how long the text is asked for once more: so long, then four times as long, so often.
_FIRST: Final = timedelta(hours=1)
_TIMES: Final = 4
_TRIES: Final = 4
_NEVER: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class AttemptCount:
    """The attempts at one text: how many, when the last one ended, and what was wrong then.

    ``unanswered`` is the id of the first call without an answer that did not count, "" if there is
    none.
    """

    count: int = 0
    last: datetime | None = None
    unanswered: str = ""
    error: str = ""

    def prompts_due(self, now: datetime, *, max_attempts: int) -> int:
        """Return how many requests may be sent now: 2, 1, or 0 to leave the model alone."""
        first = max(PROMPTS, max_attempts)
        if self.count < first:
            return min(PROMPTS, first - self.count)
        step = self.count - first
        if step >= _TRIES or self.last is None:
            return 0
        return int(now >= self.last + _FIRST * _TIMES**step)

    def spend(self, number: int, *, now: datetime, error: str) -> AttemptCount:
        """Return the count after ``number`` more attempts."""
        return AttemptCount(self.count + number, now, error=error) if number else self

    def miss(self, call_id: str, *, answered: bool, now: datetime, error: str) -> AttemptCount:
        """Return the count after a call without an answer.

        ``answered``: the model has answered a later call than the ``unanswered`` one.
        """
        first = self.unanswered or call_id
        spent = self.spend(int(bool(self.unanswered) and answered), now=now, error=error)
        return replace(spent, unanswered=first, error=error)


def together(counts: Iterable[AttemptCount]) -> AttemptCount:
    """Return what the counts of several sessions say together: the furthest one of them."""
    found = list(counts)
    if not found:
        return AttemptCount()
    return max(found, key=lambda one: (one.count, one.last or _NEVER, one.unanswered))


def to_json(count: AttemptCount, node: Node, *, strategy: str) -> str:
    """Write a count, with the node that it is about, the messages below it, and the strategy."""
    data = asdict(count) | {
        "last": count.last.isoformat() if count.last else None,
        "node": node.id,
        "strategy": strategy,
        "span": [node.span.start, node.span.stop],
    }
    return json.dumps(data, separators=(",", ":"))


def from_json(body: str) -> AttemptCount:
    """Read a count."""
    data = json.loads(body)
    last = datetime.fromisoformat(data["last"]) if data["last"] else None
    return AttemptCount(data["count"], last, data["unanswered"], data["error"])


def node_of(body: str) -> str:
    """Return the id of the node that a count is about."""
    return str(json.loads(body)["node"])


def is_about(body: str, node: Node, *, strategy: str) -> bool:
    """Return whether a count is about this node, over the same messages, made by ``strategy``."""
    data = json.loads(body)
    subject = data["node"], data["strategy"], data["span"]
    return bool(subject == (node.id, strategy, [node.span.start, node.span.stop]))


def covers(body: str, indices: Collection[int]) -> bool:
    """Return whether a count is that of a text which any of these messages is part of."""
    start, stop = json.loads(body)["span"]
    return any(start <= index < stop for index in indices)
