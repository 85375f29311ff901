"""Decides the metrics of a session's memory: how much it shortens, its cost, and its fidelity.

A figure is computed from records, and is None without any; no figure is made up. Tokens are as the
session's counter counts them; money follows from the caller's prices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from hiermem.calls.limits import PER, Prices
from hiermem.tree.status import waiting
from hiermem.types import Status
from hiermem.types.brief import Brief
from hiermem.types.transaction import NodeTally, Spent

_NONE: Final = Spent()


@dataclass(frozen=True, slots=True)
class Feedback(Brief):
    """An application's feedback on summaries: the number of scores, and their sum (each 0 to 1)."""

    count: int = 0
    total: float = 0.0

    @property
    def mean(self) -> float | None:
        """Return the mean score, or None if there is none."""
        return self.total / self.count if self.count else None


@dataclass(frozen=True, slots=True)
class Served(Brief):
    """The sticky contexts that a session rendered.

    ``selections`` counts those with new content; ``tokens`` is their total size and ``shared`` the
    part of it that began the previous selection, byte for byte.
    """

    selections: int = 0
    tokens: int = 0
    shared: int = 0


@dataclass(frozen=True, slots=True)
class LevelMetrics(Brief):
    """The summaries of one level.

    ``made`` have a text of the model, copied or reused ones included; ``degraded`` have the
    extractive stand-in; ``queue`` are to be made, because they have no text that serves or a dirty
    one. ``input_tokens`` and ``output_tokens`` are those of all texts; ``compression`` is their
    (input - output) / input. ``seconds`` is the mean time that making one took, without reused
    ones. ``tokens_in``, ``tokens_out`` and ``calls`` are the cost of the serving texts; the cost of
    failures is in ``Metrics.spent``. ``fidelity`` is the mean of kept / required anchors, without
    the summaries of which none was required.
    """

    level: int
    nodes: int
    by_status: Mapping[Status, int]
    made: int
    degraded: int
    dirty: int
    reused: int
    input_tokens: int
    output_tokens: int
    compression: float | None
    seconds: float | None
    fidelity: float | None
    calls: int
    tokens_in: int
    tokens_out: int
    queue: int


@dataclass(frozen=True, slots=True)
class Metrics(Brief):
    """The value and the cost of a session's memory.

    ``tokens`` are those of all messages, as sealing weighs them; ``open_tokens`` those that are not
    in a sealed window yet. ``cover_tokens`` is the smallest cover of all sealed messages now: the
    highest made summaries, and messages where there is none. ``compression`` is (sealed - cover) /
    sealed, ``tokens_saved`` the difference: how much shorter a request is that shows the cover
    instead of the messages.

    ``cost_saved`` is ``tokens_saved`` at the price of a context's tokens: saved at each request.
    ``cost_spent`` is the cost of all journalled calls, those of unknown outcome included: at the
    given prices or, if none are given, at those that the models had. ``cost_saved`` is None without
    prices, ``cost_spent`` if neither is known. ``summary_quality_score`` is the mean fidelity of
    the levels, all with the same weight: the many summaries of level 1 hide no level above.
    ``information_loss`` is the difference to 1.
    ``prefix_reuse`` is the share of the contexts' tokens that were in the context before.
    """

    session_id: str
    messages: int
    tokens: int
    open_tokens: int
    cover_tokens: int
    levels: tuple[LevelMetrics, ...]
    compression: float | None
    tokens_saved: int
    spent: Spent
    cost_saved: float | None
    cost_spent: float | None
    summary_quality_score: float | None
    information_loss: float | None
    feedback: Feedback = field(default_factory=Feedback)
    served: Served = field(default_factory=Served)

    @property
    def nodes(self) -> int:
        """Return the number of sealed summaries of all levels."""
        return sum(level.nodes for level in self.levels)

    @property
    def queue(self) -> int:
        """Return how many summaries are to be made: without a text that serves, or dirty."""
        return sum(level.queue for level in self.levels)

    @property
    def dirty_share(self) -> float:
        """Return the share of the summaries whose text is out of date."""
        dirty = sum(min(level.nodes, level.dirty) for level in self.levels)
        return dirty / self.nodes if self.nodes else 0.0

    @property
    def prefix_reuse(self) -> float | None:
        """Return the share of the contexts' tokens that were already in the one before."""
        return self.served.shared / self.served.tokens if self.served.tokens else None


def level_metrics(tallies: Iterable[NodeTally]) -> tuple[LevelMetrics, ...]:
    """Join the sums by level and status into one entry for each level, lowest first."""
    by_level: dict[int, list[NodeTally]] = {}
    for tally in tallies:
        by_level.setdefault(tally.level, []).append(tally)
    return tuple(_level(level, by_level[level]) for level in sorted(by_level))


def _level(level: int, tallies: Sequence[NodeTally]) -> LevelMetrics:
    def total(name: str) -> int:
        return sum(getattr(tally, name) for tally in tallies)

    by_status: dict[Status, int] = {}
    for tally in tallies:
        by_status[tally.status] = by_status.get(tally.status, 0) + tally.count
    with_text, reused = total("made"), total("reused")
    came_in, came_out = total("made_input_tokens"), total("made_tokens")
    return LevelMetrics(
        level=level,
        nodes=total("count"),
        by_status=by_status,
        made=with_text - total("degraded"),
        degraded=total("degraded"),
        dirty=total("dirty"),
        reused=reused,
        input_tokens=came_in,
        output_tokens=came_out,
        compression=_share(came_in - came_out, came_in),
        seconds=_share(total("duration_ms") / 1000, with_text - reused),
        fidelity=_share(sum(tally.fidelity for tally in tallies), total("measured")),
        calls=total("calls"),
        tokens_in=total("tokens_in"),
        tokens_out=total("tokens_out"),
        queue=sum(map(waiting, tallies)),
    )


def measure(
    session_id: str,
    *,
    messages: int,
    open_tokens: int,
    cover_tokens: int,
    tallies: Iterable[NodeTally],
    spent: Spent = _NONE,
    feedback: Feedback | None = None,
    served: Served | None = None,
    prices: Prices | None = None,
) -> Metrics:
    """Compute a session's metrics from the sums that its store returns."""
    sums = list(tallies)
    levels = level_metrics(sums)
    sealed = sum(tally.input_tokens for tally in sums if tally.level == 1)
    saved = sealed - cover_tokens
    fidelities = [level.fidelity for level in levels if level.fidelity is not None]
    quality = _share(sum(fidelities), len(fidelities))
    cost_saved, cost_spent = None, spent.cost
    if prices is not None:
        shown = prices.input if prices.context is None else prices.context
        cost_saved = saved * shown / PER
        cost_spent = prices.cost(spent.tokens_in, spent.tokens_out, cached=spent.cached_tokens)
    return Metrics(
        session_id=session_id,
        messages=messages,
        tokens=sealed + open_tokens,
        open_tokens=open_tokens,
        cover_tokens=cover_tokens,
        levels=levels,
        compression=_share(saved, sealed),
        tokens_saved=saved,
        spent=spent,
        cost_saved=cost_saved,
        cost_spent=cost_spent,
        summary_quality_score=quality,
        information_loss=None if quality is None else 1 - quality,
        feedback=feedback or Feedback(),
        served=served or Served(),
    )


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None
