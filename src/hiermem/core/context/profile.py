"""What an agent prefers in a context: a named mix of summaries, recent messages and pins.

A profile states preferences, never omissions: every profile covers the whole history. Its cut is an
exact cover inside the budget, like every cut. The summaries that the profile wants are shown whole
as far as they fit; trimmed views between them show the rest of the summary zone. The cut stays
unchanged until it reaches the budget, or twice the number of recent messages, and is then planned
again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Final, TypeAlias

from hiermem.core import arguments, needs
from hiermem.core.context import cover, pool, verbatim
from hiermem.core.context.cover import Covered
from hiermem.core.context.cut import Cut, Part, Planner, Situation
from hiermem.core.context.render import Shown
from hiermem.core.context.view import Piece, View
from hiermem.core.context.zone import VIEW_TOKENS
from hiermem.core.needs import Reading
from hiermem.core.text.policy import check
from hiermem.errors import BudgetTooSmallError, ConfigError, UsageError
from hiermem.types import Node, Revision, Summary

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
_MAX_TAG: Final = 512
#: The approximate cost of a frame; the exact cost is known once a piece is made.
_FRAME: Final = 90
#: Only this many summaries, the newest, are compared with one another.
_WEIGHED: Final = 500

#: A made summary that may be shown whole.
_Candidate: TypeAlias = tuple[Node, Revision]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextProfile:
    """A named mix for one kind of agent; each profile has a sticky cut of its own.

    ``levels`` are the levels whose summaries are shown whole, None for no preference; trimmed views
    show what these summaries do not cover. ``recent`` is the number of newest messages that are
    verbatim: exchanges stay whole, and up to twice as many messages stay before the older ones join
    the summaries. ``pins`` are ranges of messages, (start, stop), that are verbatim in addition.

    If not all wanted summaries fit, those with the highest ``value`` come first: ``value`` is
    called with a Summary and returns a number. Among equals, summaries with one of ``tags`` come
    first (which are also shown as finely as ``levels`` allow), then the newest. Raises ConfigError.
    """

    name: str
    levels: frozenset[int] | None = None
    recent: int | None = None
    pins: tuple[tuple[int, int], ...] = ()
    tags: frozenset[str] = frozenset()
    value: Callable[[Summary], float] | None = None

    def __post_init__(self) -> None:
        try:
            self._check()
        except UsageError as error:
            raise ConfigError(f"ContextProfile: {error}") from None

    def _check(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise UsageError("name must be 1 to 100 letters, digits, dots, dashes or underscores")
        if self.levels is not None:
            levels = frozenset(
                arguments.whole(level, "a level in levels", least=1)
                for level in _each(self.levels, "levels")
            )
            if not levels:
                raise UsageError("levels is empty; use None for no wish")
            object.__setattr__(self, "levels", levels)
        if self.recent is not None:
            arguments.whole(self.recent, "recent", least=1)
        pins = tuple(arguments.stretch(pin, "a pin") for pin in _each(self.pins, "pins"))
        object.__setattr__(self, "pins", pins)
        tags = frozenset(
            check(tag, what="a tag in tags", cap=_MAX_TAG).strip().casefold()
            for tag in _each(self.tags, "tags")
        )
        object.__setattr__(self, "tags", tags)
        if self.value is not None:
            arguments.function(self.value, "value")

    @property
    def key(self) -> str:
        """Return the name of its sticky cut.

        Functions cannot be compared, so two profiles with different ``value`` need different names.
        """
        said: list[Any] = [
            None if self.levels is None else sorted(self.levels),
            self.recent,
            self.pins,
            sorted(self.tags),
        ]
        return f"{self.name}~{sha256(json.dumps(said).encode()).hexdigest()[:12]}"

    @property
    def mixes(self) -> bool:
        """Return whether the profile states a preference about summaries."""
        return self.levels is not None or bool(self.tags) or self.value is not None

    @classmethod
    def code_reviewer(cls, **changes: Any) -> ContextProfile:
        """Return a profile with all level-1 summaries, which keep details, and ten messages."""
        return replace(cls(name="code-reviewer", levels=frozenset({1}), recent=10), **changes)

    @classmethod
    def documentation(cls, **changes: Any) -> ContextProfile:
        """Return a profile with level-2 summaries, level 3 for older parts, and five messages."""
        return replace(cls(name="documentation", levels=frozenset({2, 3}), recent=5), **changes)


def _each(value: Any, what: str) -> tuple[Any, ...]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise UsageError(f"{what} is {type(value).__name__}; it must hold several")
    return tuple(value)


# ---------------------------------------------------------------------------------------------
# The cut


def select(
    at: Situation, profile: ContextProfile, session_id: str, previous: View | None
) -> Reading[Cut]:
    """Return the cut for a profile; keep the ``previous`` one as long as it is sufficient.

    Raises BudgetTooSmallError like every cut; the pins are part of the minimum.
    """
    pins = yield from _pinned(at, profile)
    planner = _Planner(at, profile, session_id, previous)
    block = planner.zone.quoted(pins)
    if block is None:
        return (yield from planner.select())
    short = max(0, block.tokens - at.budget)
    taken = block.tokens - short
    planner.at = replace(at, budget=at.budget - taken, overhead=at.overhead + taken)
    try:
        found = yield from planner.select()
    except BudgetTooSmallError as error:
        if not short:
            raise
        # The cut was asked for its own minimum: the pins come on top of it.
        raise _pins_too_large(at, block.tokens, least=error.minimum + short) from None
    if short:
        raise _pins_too_large(at, block.tokens, least=at.overhead + block.tokens)
    raw = {item.message.index for item in found.shown if not item.partial}
    left = [item for item in pins if item.message.index not in raw]
    block = planner.zone.quoted(left)
    if block is None:
        return found
    raw_at = (place for place, each in enumerate(found.blocks) if each.message is not None)
    at_raw = next(raw_at, len(found.blocks))
    blocks = (*found.blocks[:at_raw], block, *found.blocks[at_raw:])
    return replace(found, blocks=blocks, pinned=tuple(left))


def _pins_too_large(at: Situation, taken: int, *, least: int) -> BudgetTooSmallError:
    return BudgetTooSmallError(
        budget=at.budget + at.overhead,
        minimum=least,
        why=f"the profile's pins take {taken} tokens",
    )


def _pinned(at: Situation, profile: ContextProfile) -> Reading[list[Shown]]:
    found: dict[int, Shown] = {}
    for start, stop in profile.pins:
        read = yield from needs.messages(start, min(stop, at.state.next_index))
        found |= {stored.index: Shown(stored) for stored in read}
    return [found[index] for index in sorted(found)]


class _Planner(Planner):
    """Plans one selection for a profile."""

    def __init__(
        self, at: Situation, profile: ContextProfile, session_id: str, previous: View | None
    ) -> None:
        super().__init__(at, previous)
        self.profile = profile
        self.session_id = session_id

    def keep(self, view: View, windows: Sequence[Node]) -> Reading[Cut | None]:
        """Append the new messages; return None if there are too many."""
        found = self._assemble(view, (yield from verbatim.read(self.at.state, windows)))
        if found.tokens > self.at.budget:
            return None
        recent = self.profile.recent
        spoken = sum(not item.empty for item in found.shown)
        return None if recent is not None and spoken > 2 * recent else found

    def replan(self, fullness: float) -> Reading[Cut]:
        """Plan both zones anew; as without a profile where its wishes do not fit."""
        yield from needs.at_length()
        budget = self.at.budget
        part = yield from self._recent(int(fullness * budget))
        older, boundary = part.older, part.boundary
        below = yield from cover.inside(self.roots, 0, boundary)
        least = self.zone.least(below) + (VIEW_TOKENS // 2 + pool.PIECE if older else 0)
        spent = self.cost(part.raw)
        if spent + least > budget:
            return (yield from super().replan(1.0))
        room = max(least, int(fullness * budget) - spent)
        pieces: list[Piece] = []
        if older:
            weight = sum(item.message.tokens for item in older)
            share = max(VIEW_TOKENS // 2 + pool.PIECE, min(weight, room // 4))
            share = min(share, room - self.zone.least(below))
            pieces.append((yield from self.zone.of_messages(older, share, at=boundary)))
            room -= pieces[0].tokens
        pieces[:0] = yield from self._mixed(below, boundary, room)
        view = View(boundary, tuple(pieces))
        found = self._assemble(view, [*older, *part.raw])
        return found if found.tokens <= budget else (yield from super().replan(1.0))

    # -- raw messages

    def _recent(self, limit: int) -> Reading[Part]:
        """Divide the messages of the newest windows; the newest ones that are wanted stay."""
        windows = (yield from self._newest_windows(self.at.budget)) or self.tail
        shown = yield from verbatim.read(self.at.state, windows)
        wanted = self.profile.recent
        share = limit if wanted else int(self.at.policy.verbatim * self.at.budget)
        raw: list[Shown] = []
        for piece in reversed(verbatim.pieces_of(shown)):
            if raw and self.cost([*piece, *raw]) > share:
                break
            raw += piece
            if wanted is not None and sum(not item.empty for item in raw) >= wanted:
                break
        held = {item.message.index for item in raw}
        allowed = verbatim.allowed_boundaries(windows, self.opened, self.total)
        return self._divided(windows, shown, held, allowed)

    # -- whole summaries

    def _mixed(
        self, below: Sequence[Covered], boundary: int, room: int
    ) -> Reading[tuple[Piece, ...]]:
        """Cover the zone by the wanted whole summaries, and by views of the gaps between them."""
        if not self.profile.mixes:
            return (yield from self.zone.pooled(below, room))
        wanted = yield from self._by_worth((yield from self._candidates(below)))
        low, high = 0, len(wanted)
        # Search for the largest number that fits; the cost grows with the number.
        while low < high:
            middle = (low + high + 1) // 2
            fits = yield from self._fits(wanted[:middle], boundary, room)
            low, high = (middle, high) if fits else (low, middle - 1)
        while True:
            pieces = yield from self._pieces(wanted[:low], boundary, room)
            if not low or sum(piece.tokens for piece in pieces) <= room:
                return pieces
            low -= 1

    def _candidates(self, below: Sequence[Covered]) -> Reading[list[_Candidate]]:
        """Return the largest made summaries of wanted levels; tagged ones as fine as possible."""
        levels = self.profile.levels
        lowest = min(levels) if levels else 1
        waiting = list(below)
        found: list[_Candidate] = []
        while waiting:
            waiting = sorted(waiting, key=lambda item: item.windows)[-_WEIGHED:]
            read = yield from self._made(waiting)
            finer: list[Covered] = []
            for item in waiting:
                candidate = read.get(item.id)
                allowed = levels is None or item.level in levels
                tagged = candidate is not None and self._tagged(candidate[1])
                if item.level > lowest and (not allowed or tagged):
                    finer.append(item)
                elif allowed and candidate is not None:
                    found.append(candidate)
            waiting = yield from cover.children(finer)
        return found

    def _made(self, items: Sequence[Covered]) -> Reading[dict[str, _Candidate]]:
        nodes = yield from needs.nodes([item.id for item in items])
        made = {node.id: node for node in nodes if node.revision}
        read = yield from needs.revisions([(node.id, node.revision) for node in made.values()])
        return {
            revision.node_id: (made[revision.node_id], revision)
            for revision in read
            if revision.text
        }

    def _tagged(self, revision: Revision) -> bool:
        return any(tag.strip().casefold() in self.profile.tags for tag in revision.tags)

    def _by_worth(self, candidates: Sequence[_Candidate]) -> Reading[list[_Candidate]]:
        value = self.profile.value
        above: list[Node] = []
        if value is not None:
            parents = {node.parent for node, _ in candidates if node.parent}
            above = yield from needs.nodes(sorted(parents))
        made = {node.id for node in above if node.revision}

        def worth(each: _Candidate) -> tuple[float, bool, int]:
            node, revision = each
            given = 0.0
            if value is not None:
                superseded = node.parent in made
                given = float(
                    value(Summary(self.session_id, node, revision, superseded=superseded))
                )
            return given, self._tagged(revision), node.windows[0]

        return sorted(candidates, key=worth, reverse=True)

    def _fits(self, whole: Sequence[_Candidate], boundary: int, room: int) -> Reading[bool]:
        taken = [node.windows for node, _ in whole]
        gaps = yield from cover.between(self.roots, taken, 0, boundary)
        cost = sum(revision.tokens + _FRAME for _, revision in whole)
        return cost + sum(self.zone.least(gap) for gap in gaps) <= room

    def _pieces(
        self, whole: Sequence[_Candidate], boundary: int, room: int
    ) -> Reading[tuple[Piece, ...]]:
        pieces: list[Piece] = []
        for node, revision in whole:
            pieces.append((yield from self.zone.whole(node, revision)))
        taken = [node.windows for node, _ in whole]
        gaps = yield from cover.between(self.roots, taken, 0, boundary)
        least = [self.zone.least(gap) for gap in gaps]
        spare = max(0, room - sum(piece.tokens for piece in pieces) - sum(least))
        weights = [sum(item.tokens for item in gap) for gap in gaps]
        for gap, low, weight in zip(gaps, least, weights, strict=True):
            share = low + spare * weight // max(1, sum(weights))
            pieces += yield from self.zone.pooled(gap, share)
        return tuple(sorted(pieces, key=lambda piece: piece.windows))
