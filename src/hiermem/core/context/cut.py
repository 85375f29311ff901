"""The exact cover of a session inside a token budget, in two zones, and how it stays put.

The summary zone stands for every window before a boundary, as whole summaries or pooled views; the
verbatim zone holds everything after it. Providers bill a cached prefix at a fraction, so the cut is
sticky (summary_recipe section 5, policy H): new messages are appended until the budget is reached;
then the oldest verbatim windows collapse into their summaries at the end of the zone; the zone is
rewritten as one pooled view only where it grew too large; a full re-plan is the last resort.

The one rule: every message in scope is represented exactly once, and the rendered whole never
exceeds the budget; what cannot fit is an error that states the minimum, or is listed as omitted.

It reads through ``needs`` and so never waits; it does not search, and it does not make summaries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from hiermem.config import ContextPolicy
from hiermem.core import needs
from hiermem.core.context import cover, pool, verbatim
from hiermem.core.context.cover import Covered
from hiermem.core.context.render import Block, Shown, message_blocks
from hiermem.core.context.view import OpenView, View
from hiermem.core.context.zone import VIEW_TOKENS, ZoneMaker
from hiermem.core.needs import Reading
from hiermem.core.summaries import salience
from hiermem.core.tree.state import SessionState
from hiermem.errors import BudgetTooSmallError
from hiermem.types import Node, Span

#: Windows read at a time while walking back from the newest.
_STRIDE = 16


@dataclass(frozen=True, slots=True)
class Situation:
    """All that a cut depends on, besides what it reads.

    ``budget`` is what the cut itself may spend, in tokens as ``count`` counts; ``overhead`` is what
    the caller's system prompt, tools and recall take beside it (named in errors only). ``reserve``
    is the caller's own size for the verbatim zone, or None for the policy's. ``key`` signs fences.
    ``provisional`` are made summaries of groups that are still open; ``view`` goes before the names
    of its trimmed views, "" for the default one.
    """

    state: SessionState
    budget: int
    count: Callable[[str], int]
    key: bytes
    policy: ContextPolicy = field(default_factory=ContextPolicy)
    weights: salience.Weights = field(default_factory=salience.Weights)
    overhead: int = 0
    reserve: int | None = None
    provisional: tuple[Node, ...] = ()
    view: str = ""
    sticky: bool = True
    cache_cold: bool = False
    allow_omission: bool = False


@dataclass(frozen=True, slots=True)
class Omitted:
    """A stretch that the budget did not allow to be represented, on the caller's permission."""

    name: str
    span: Span
    messages: int


@dataclass(frozen=True, slots=True)
class Cut:
    """A decided cut: its sticky state, what it renders, and what it left out.

    ``pinned`` are messages that stand verbatim besides being covered.
    """

    view: View
    shown: tuple[Shown, ...]
    blocks: tuple[Block, ...]
    omitted: tuple[Omitted, ...] = ()
    pinned: tuple[Shown, ...] = ()

    @property
    def tokens(self) -> int:
        """Give the tokens of all blocks together."""
        return sum(block.tokens for block in self.blocks)


def select(situation: Situation, previous: View | None) -> Reading[Cut]:
    """Give the cut for this situation, staying with ``previous`` as long as it fits.

    Raises BudgetTooSmallError where not even the minimum fits and omission was not allowed.
    """
    planner = Planner(situation, previous.serial if previous else 0)
    yield from planner.look()
    policy = situation.policy
    if not situation.sticky:
        return (yield from planner.afresh(1.0))
    if previous is None or situation.cache_cold:
        return (yield from planner.afresh(policy.replan_cold))
    kept = yield from planner.keep(previous)
    if kept is not None:
        return kept
    return (yield from planner.afresh(policy.replan))


def newest_sealed(state: SessionState) -> Reading[list[Node]]:
    """Give the sealed windows from the one that holds the newest message on; [] if it is open.

    Of a sliced newest message that is the window of its last slice.
    """
    newest = state.next_index - 1
    found: list[Node] = []
    if any(window.last_index == newest for window in state.open_windows()):
        return found
    end = state.next_ordinal(1)
    while end > 0:
        begin = max(0, end - _STRIDE)
        found = (yield from needs.windows(begin, end)) + found
        holding = [window.ordinal for window in found if window.span.stop == newest + 1]
        if holding:
            return [window for window in found if window.ordinal >= holding[-1]]
        end = begin
    return []


class Planner:
    """One selection in the making. Its methods are the steps of policy H, cheapest first."""

    def __init__(self, situation: Situation, serial: int) -> None:
        self.at = situation
        self.zone = ZoneMaker(
            situation.count, situation.key, situation.weights, serial, situation.view
        )
        self.total = situation.state.next_ordinal(1)
        self.opened = situation.state.open_windows()
        self.roots = cover.cheapest(situation.state, situation.provisional)
        # The newest message always stands raw: the window that holds it, sealed or not, and those
        # sealed at the same moment are never put into the summary zone.
        self.last = self.total
        self.tail: list[Node] = []

    def look(self) -> Reading[None]:
        """Find the window that holds the newest message, if that is sealed already."""
        self.tail = yield from newest_sealed(self.at.state)
        self.last = self.total - len(self.tail)

    # -- keeping the previous cut

    def keep(self, view: View) -> Reading[Cut | None]:
        """Append what is new; collapse and rewrite where the budget is reached; None: re-plan."""
        if view.boundary > self.last:
            return None
        windows = yield from needs.windows(view.boundary, self.total)
        shown = yield from self._shown(windows)
        cut = self._assemble(view, shown)
        if cut.tokens <= self.at.budget:
            return cut
        boundary = self._collapse_to(windows, shown)
        going = [window for window in windows if window.ordinal < boundary]
        limit = int(self.at.policy.zone_limit * self.at.budget)
        expected = sum(piece.tokens for piece in view.pieces)
        expected += sum(window.allotted_tokens for window in going)
        if expected <= limit and view.opened is None:
            view = yield from self._collapse(view, going, shown, boundary)
        if expected > limit or view.opened or sum(piece.tokens for piece in view.pieces) > limit:
            left = yield from self._shown([w for w in windows if w.ordinal >= boundary])
            view = yield from self._rewrite(left, boundary)
        cut = self._assemble(view, (yield from self._shown(windows[len(going) :])))
        return cut if cut.tokens <= self.at.budget else None

    def _collapse_to(self, windows: Sequence[Node], shown: Sequence[Shown]) -> int:
        """Find the boundary that leaves the watermark verbatim, or as little above it as can be."""
        policy, reserve = self.at.policy, self.at.reserve
        mark = policy.watermark * self.at.budget if reserve is None else reserve
        left = self._cost(shown)
        spent: dict[int, int] = {}
        for item, ordinal in zip(shown, verbatim.window_of_each(windows, shown), strict=True):
            if ordinal is not None and not item.silent:
                spent[ordinal] = spent.get(ordinal, 0) + item.message.tokens
        allowed = verbatim.allowed_boundaries(windows, self.opened, self.total)
        for window in windows:
            left -= spent.get(window.ordinal, 0)
            after = window.ordinal + 1
            if after >= self.last or (left <= mark and after in allowed):
                return min(after, self.last)
        return self.last

    def _rewrite(self, shown: Sequence[Shown], boundary: int) -> Reading[View]:
        """Make the summary zone one pooled view; older messages beside the newest turn join it.

        A window that was sealed at this very turn may hold much that was sent before; raw, it would
        be paid for again and leave less room until the next rewriting.
        """
        budget, policy = self.at.budget, self.at.policy
        older = self._older(shown) if boundary == self.last else []
        below = yield from cover.below(self.roots, boundary)
        least = self.zone.least(below) + (pool.PIECE if older else 0)
        share = max(int(policy.zone_rewrite * budget), least)
        if not below:
            opened = self.zone.of_open(older, share) if older else None
            return View(boundary, (), opened)
        pieces = yield from self.zone.pooled(below, share, beside=older)
        return View(boundary, pieces, self.zone.silent(older) if older else None)

    def _older(self, shown: Sequence[Shown]) -> list[Shown]:
        """Find what is above the watermark and not of the newest turn, exchange groups whole."""
        policy, budget, reserve = self.at.policy, self.at.budget, self.at.reserve
        mark = int(policy.watermark * budget) if reserve is None else reserve
        pieces = verbatim.pieces_of(shown)
        raw: list[Shown] = []
        turn_ended = False
        while pieces:
            wider = [*pieces[-1], *raw]
            cost = self._cost(wider)
            own_turn = not turn_ended and cost <= int(policy.verbatim * budget)
            if raw and cost > mark and not own_turn:
                break
            turn_ended = turn_ended or pieces[-1][0].message.role == "user"
            raw = wider
            pieces.pop()
        return _in_order(item for piece in pieces for item in piece if not item.silent)

    def _collapse(
        self, view: View, going: Sequence[Node], shown: Sequence[Shown], boundary: int
    ) -> Reading[View]:
        """Put the summaries of the windows that are ``going`` at the end of the summary zone."""
        read = yield from needs.revisions([(w.id, w.revision) for w in going if w.revision])
        texts = {revision.node_id: revision for revision in read}
        messages = [item.message for item in shown]
        pieces = list(view.pieces)
        for window in going:
            revision = texts.get(window.id)
            if revision is not None:
                pieces.append(self.zone.whole(window, revision))
            else:
                pieces.append(self.zone.stand_in(window, verbatim.in_window(window, messages)))
        return View(boundary, tuple(pieces), view.opened)

    # -- planning afresh

    def afresh(self, fullness: float) -> Reading[Cut]:
        """Plan both zones anew, filling about ``fullness`` of the budget.

        Everything stands verbatim where that fits. Otherwise the newest windows take their share
        and one pooled view of all others takes what is left.
        """
        budget, policy = self.at.budget, self.at.policy
        windows = yield from self._newest_windows()
        if (windows[0].ordinal if windows else self.total) == 0:
            shown = yield from self._shown(windows)
            cut = self._assemble(View(0, ()), shown)
            if cut.tokens <= budget:
                return cut
        limit = int(fullness * budget)
        share = int(policy.verbatim * budget) if self.at.reserve is None else self.at.reserve
        boundary = self._boundary(windows, min(share, limit))
        below = yield from cover.below(self.roots, boundary)
        newest = [w for w in windows if w.ordinal >= boundary]
        if boundary == self.last:
            newest = self.tail
        shown = yield from self._shown(newest)
        raw = self._cost(shown)
        wish = max(self.zone.least(below), int(policy.zone_rewrite * budget)) if below else 0
        if raw + wish <= budget:
            pieces = yield from self.zone.pooled(below, max(limit - raw, wish))
            cut = self._assemble(View(boundary, pieces), shown)
            if cut.tokens <= budget:
                return cut
        return (yield from self._tight(limit, share))

    def _newest_windows(self) -> Reading[list[Node]]:
        """Read windows from the newest back until what they hold exceeds the budget."""
        tokens = sum(window.tokens for window in self.opened)
        found: list[Node] = []
        begin = self.total
        while begin > 0 and tokens <= self.at.budget:
            end, begin = begin, max(0, begin - _STRIDE)
            read = yield from needs.windows(begin, end)
            found = read + found
            tokens += sum(window.input_tokens for window in read)
        return found

    def _boundary(self, windows: Sequence[Node], share: int) -> int:
        """Find the earliest allowed boundary whose verbatim zone stays inside its share."""
        allowed = verbatim.allowed_boundaries(windows, self.opened, self.total)
        tokens = sum(window.tokens for window in self.opened)
        best = self.last
        for window in reversed(windows):
            tokens += window.input_tokens
            if tokens > share:
                break
            if window.ordinal in allowed and window.ordinal < best:
                best = window.ordinal
        return best

    def _tight(self, limit: int, share: int) -> Reading[Cut]:
        """Plan where even the open windows are too much: their older messages become one view."""
        below = yield from cover.below(self.roots, self.last)
        shown = yield from self._shown(self.tail)
        pieces = verbatim.pieces_of(shown)
        newest = pieces[-1] if pieces else []
        older = [piece for piece in pieces[:-1] if any(not item.silent for item in piece)]
        group = self._cost(newest)
        needed = VIEW_TOKENS if below or older else 0
        minimum = group + needed + pool.PIECE * len(below)
        if not below:
            minimum = min(minimum, self._cost(shown))
        omitted: list[Omitted] = []
        if minimum > self.at.budget:
            self._may_omit(group=group, minimum=minimum, roots=len(below))
            room = self.at.budget - group - VIEW_TOKENS
            if room < 0:
                return (yield from self._newest_only(below, newest, older))
            left_out = len(below) - room // pool.PIECE
            omitted = [_omitted(item) for item in below[:left_out]]
            below = below[left_out:]
            minimum = group + VIEW_TOKENS + pool.PIECE * len(below)
        limit = max(limit, minimum)
        spare = limit - minimum
        raw = list(newest)
        while older and self._cost([*older[-1], *raw]) <= min(share, group + spare // 2):
            raw = [*older.pop(), *raw]
        left = limit - self._cost(raw)
        viewed = _in_order(item for piece in older for item in piece)
        opened: OpenView | None = None
        if viewed:
            beyond = left - VIEW_TOKENS - pool.PIECE * len(below)
            part = VIEW_TOKENS // 2 + beyond // 3 if below else left
            opened = self.zone.of_open(viewed, part)
            left -= opened.tokens
        zone = yield from self.zone.pooled(below, left)
        cut = self._assemble(View(self.last, zone, opened), [*viewed, *raw])
        return replace(cut, omitted=tuple(omitted))

    def _may_omit(self, *, group: int, minimum: int, roots: int) -> None:
        """Refuse a budget under the minimum, unless omission is allowed and would be enough."""
        budget, overhead = self.at.budget, self.at.overhead
        if self.at.allow_omission and group <= budget:
            return
        why = f"the newest exchange group takes {group} tokens"
        if not self.at.allow_omission and minimum > group:
            why += f" and {roots} root summaries with the older open messages the rest"
        raise BudgetTooSmallError(
            budget=budget + overhead,
            minimum=(group if self.at.allow_omission else minimum) + overhead,
            why=why,
            omission=group <= budget,
        )

    def _newest_only(
        self, below: Sequence[Covered], newest: Sequence[Shown], older: Sequence[list[Shown]]
    ) -> Reading[Cut]:
        """Show as many of the newest messages as fit, where there is no room for any view."""
        windows = yield from self._newest_windows()
        boundary = self._boundary(windows, self.at.budget)
        if boundary < self.last:
            wider = yield from self._shown([w for w in windows if w.ordinal >= boundary])
            if self._cost(wider) <= self.at.budget:
                below = yield from cover.below(self.roots, boundary)
                newest, older = wider, ()
        raw, left = list(newest), list(older)
        while left and self._cost([*left[-1], *raw]) <= self.at.budget:
            raw = [*left.pop(), *raw]
        omitted = [_omitted(item) for item in below]
        for item in _in_order(item for piece in left for item in piece):
            index = item.message.index
            omitted.append(Omitted(f"m{index}", Span(index, index + 1), 1))
        return replace(self._assemble(View(boundary, ()), raw), omitted=tuple(omitted))

    # -- what both share

    def _shown(self, windows: Sequence[Node]) -> Reading[list[Shown]]:
        """Read the messages of these windows and of all open ones."""
        begins = verbatim.starts(windows, self.opened)
        if not begins:
            return []
        first = min(begin.index for begin in begins.values())
        read = yield from needs.messages(first, self.at.state.next_index)
        return verbatim.shown_from(begins, read)

    def _cost(self, shown: Sequence[Shown]) -> int:
        blocks = message_blocks(_in_order(shown), key=self.at.key, count=self.at.count)
        return sum(block.tokens for block in blocks)

    def _assemble(self, view: View, shown: Sequence[Shown]) -> Cut:
        """Render: the summary zone oldest first, the view of open messages, the raw messages."""
        view = replace(view, serial=self.zone.serial)
        opened = view.opened
        raw = [
            item for item in _in_order(shown) if not (opened and opened.holds(item.message.index))
        ]
        blocks = [piece.block() for piece in view.pieces if piece.text]
        if opened and opened.text:
            blocks.append(opened.block())
        blocks += message_blocks(raw, key=self.at.key, count=self.at.count)
        return Cut(view, tuple(raw), tuple(blocks))


def _omitted(item: Covered) -> Omitted:
    """Name a node that is left out; slices of one message are not messages of their own."""
    return Omitted(item.id, item.span, min(item.messages, item.span.stop - item.span.start))


def _in_order(shown: Iterable[Shown]) -> list[Shown]:
    """Sort by index; a message stands in at most one item of a selection."""
    return sorted(shown, key=lambda item: item.message.index)
