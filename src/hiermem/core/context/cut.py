"""The exact cover of a session inside a token budget, in two zones, and how it stays stable.

The summary zone represents every window before a boundary, in a row of pooled views. The verbatim
zone holds everything after the boundary. Providers bill a cached prefix at a fraction of the price,
so the cut is sticky: new messages are appended until the budget is reached. Then the oldest
messages move to the end of the summary zone, as a view of their fair share of the history. The
summary zone is pooled again as a whole only when it has grown to its limit. A full re-plan is the
last resort.

Every message in scope is represented exactly once, and the rendered context never exceeds the
budget. Where the required messages do not fit, the cut raises an error that states the minimum, or
lists what it omits if the caller allows omission.

This module reads through ``needs`` and so never waits. It neither searches nor makes summaries.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

from hiermem.config import ContextPolicy
from hiermem.core import needs
from hiermem.core.context import cover, pool, standing, verbatim
from hiermem.core.context.cover import Covered
from hiermem.core.context.render import Block, Shown, Writer, in_order
from hiermem.core.context.view import Piece, Runs, View, each_of, runs_of
from hiermem.core.context.zone import FRAME, VIEW_TOKENS, ZoneMaker
from hiermem.core.needs import Reading
from hiermem.core.text.instructions import Instruction
from hiermem.core.text.measure import body, day
from hiermem.core.tree.state import SessionState
from hiermem.errors import BudgetTooSmallError
from hiermem.types import Node, Span, StoredMessage, Unit
from hiermem.types.transaction import NeedLevel

#: If the zone would be smaller than this fraction of the size that a rewrite would give it, it is
#: rewritten instead of extended: a long turn has compressed it too much.
_PRESSED = 0.75
#: How many tokens may be sent again to make the zone one token smaller, when the new piece is
#: pooled together with the pieces before it.
_ROOM = 0.5
#: Above this many characters a slice is not counted to see whether it stays verbatim.
_LONG = 50_000
#: A previous cut is not extended if the messages behind its zone take more than this many times the
#: budget: more than a budget of them is new then, and a plan from the tree reads less.
_GAP = 2
#: The name of a record of standing instructions that is not part of a cut.
_BESIDE = "instructions"
#: The most messages that may lead a session.
MOST_LEADING = 4
#: Number of windows per read when the planner walks back from the newest window.
_STRIDE = 16
#: Number of nodes above the windows that are read before a plan asks for them.
_AHEAD = 32


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything that a cut depends on, except for the data that it reads.

    ``budget`` is the number of tokens that the cut itself may spend, as ``writer`` counts them.
    ``overhead`` is the number of tokens that the caller's system prompt, tools and recall take in
    addition (used in errors only). ``reserve`` is the caller's size for the verbatim zone, or None
    for the policy's size. ``gone`` are the messages that were erased or put in quarantine.
    ``view`` is the prefix of the names of the trimmed views, "" for the default view. Those of the
    ``instructions`` that no raw message says take at most ``standing_room`` tokens of the budget.
    ``lead`` are the system messages that lead the session and every context of it, beside the
    budget; ``too_long`` is their number of tokens where they would take more than half of it and so
    do not lead.
    """

    state: SessionState
    budget: int
    writer: Writer
    policy: ContextPolicy = field(default_factory=ContextPolicy)
    overhead: int = 0
    reserve: int | None = None
    view: str = ""
    gone: Runs = ()
    sticky: bool = True
    cache_cold: bool = False
    allow_omission: bool = False
    instructions: tuple[Instruction, ...] = ()
    standing_room: int = 0
    lead: tuple[Shown, ...] = ()
    too_long: int = 0


@dataclass(frozen=True, slots=True)
class Omitted:
    """A stretch that does not fit the budget and that the caller allowed to be omitted."""

    name: str
    span: Span
    messages: int


@dataclass(frozen=True, slots=True)
class Cut:
    """A decided cut: its sticky state, what it renders, and what it omits.

    ``pinned`` are messages that are shown verbatim in addition to being covered. ``lead`` stands
    before ``blocks``, and outside their budget.
    """

    view: View
    shown: tuple[Shown, ...]
    blocks: tuple[Block, ...]
    omitted: tuple[Omitted, ...] = ()
    pinned: tuple[Shown, ...] = ()
    lead: tuple[Block, ...] = ()

    @property
    def tokens(self) -> int:
        """Return the tokens of all blocks together, without the lead."""
        return sum(block.tokens for block in self.blocks)


@dataclass(frozen=True, slots=True)
class Part:
    """The messages of the newest windows and of the open windows, divided between the zones.

    ``raw`` stays verbatim. Windows before ``boundary`` move to the summary zone; ``past`` are their
    messages. ``older`` are messages that move as well although their windows stay or are not
    sealed. ``after`` are all messages of the windows that stay.
    """

    boundary: int
    raw: list[Shown]
    older: list[Shown]
    after: list[Shown]
    past: list[Shown]


def prefetch(state: SessionState) -> tuple[NeedLevel, ...]:
    """Return what a cut that is planned anew will ask for, as far as the state alone tells.

    These are the newest windows, and the levels above as far down as they have few nodes.
    """
    total = state.next_ordinal(1)
    found = [NeedLevel(1, max(0, total - _STRIDE), total)] if total else []
    left = _AHEAD
    for level in range(len(state.ordinals), 1, -1):
        nodes = state.next_ordinal(level)
        left -= nodes
        if left < 0:
            break
        if nodes:
            found.append(NeedLevel(level, 0, nodes))
    return tuple(found)


def newest_sealed(state: SessionState) -> Reading[list[Node]]:
    """Return the sealed windows from the window of the newest message on; [] if that is open.

    If the newest message is sliced, its window is the window of its last slice.
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
    """Plans one selection. Its methods are the steps of the policy, cheapest first."""

    def __init__(self, situation: Situation, previous: View | None) -> None:
        self.at, self.previous = situation, previous
        serial = previous.serial if previous else 0
        self.zone = ZoneMaker(situation.writer, serial, situation.view)
        self.cost = situation.writer.cost
        self.total = situation.state.next_ordinal(1)
        self.opened = situation.state.open_windows()
        self.roots = cover.cheapest(situation.state)
        # The newest message is always raw. Therefore the window that holds it, sealed or not, and
        # the windows that were sealed at the same moment never enter the summary zone.
        self.last = self.total
        self.tail: list[Node] = []

    def select(self) -> Reading[Cut]:
        """Return the cut for the situation; keep the previous one as long as it fits.

        Raises BudgetTooSmallError where not even the minimum fits and omission was not allowed.
        """
        self.tail = yield from newest_sealed(self.at.state)
        self.last = self.total - len(self.tail)
        policy, previous = self.at.policy, self.previous
        if not self.at.sticky:
            return (yield from self.replan(1.0))
        if previous is None or self.at.cache_cold:
            return (yield from self.replan(policy.replan_cold))
        stood = sum(record.tokens for record in previous.standing)
        if previous.boundary > self.last or stood > self.at.standing_room:
            return (yield from self.replan(policy.replan))
        windows = yield from self._newest_windows(_GAP * self.at.budget, begin=previous.boundary)
        if windows and windows[0].ordinal > previous.boundary:
            return (yield from self.replan(policy.replan_cold))
        kept = yield from self.keep(previous, windows)
        return kept or (yield from self.replan(policy.replan))

    # -- keeping the previous cut

    def keep(self, view: View, windows: Sequence[Node]) -> Reading[Cut | None]:
        """Append the new messages; collapse or rewrite at the budget; None means re-plan."""
        shown = yield from verbatim.read(self.at.state, windows)
        cut = self._assemble(view, shown)
        if cut.tokens <= self.at.budget:
            return cut
        yield from needs.at_length()
        cut = (yield from self._append(view, windows, shown)) or cut
        if cut.tokens > self.at.budget:
            cut = yield from self._rewrite(view, windows, shown)
        return cut if cut.tokens <= self.at.budget else None

    def _append(
        self, view: View, windows: Sequence[Node], shown: Sequence[Shown]
    ) -> Reading[Cut | None]:
        """Move the oldest verbatim messages to the end of the zone, as a piece of a fair share.

        Return None if the zone would exceed its limit, or would leave less room for new messages
        than each collapse sends again.
        """
        policy = self.at.policy
        part = self._part(windows, shown, self._watermark)
        past = [item for item in part.past if not view.holds(item.message.index)]
        older = [item for item in part.older if not view.holds(item.message.index)]
        going = [item for item in (*past, *older) if not item.empty]
        if not view.pieces or not (going or part.boundary > view.boundary):
            return None
        left, raw = self._left(shown), self.cost(part.raw)
        share = int(policy.zone_rewrite * left)
        again = self._again(part.raw)
        free = max(int(policy.free * self.at.budget), again)
        missing = self._least(shown) - raw - view.tokens
        stood = sum(piece.messages for piece in view.pieces)
        fair = share / max(1, stood + len(going))
        least = max(int(policy.piece * self.cost(going)), VIEW_TOKENS // 2)
        size = max(int(fair * len(going)), least)
        anew = min(share, self._room(part.raw) - again)
        if view.tokens + size < _PRESSED * anew or missing > self.cost(going):
            return None
        size = max(size, missing)
        number, size = self._joined(view.pieces, size, len(going), fair=fair, missing=missing)
        others, joined = view.pieces[:number], view.pieces[number:]
        records = self._standing(part.raw, view.standing, number)
        # What the records take, the new piece gives: else the zone would reach its limit earlier.
        added = sum(record.tokens for record in records)
        added -= sum(record.tokens for record in view.standing)
        size = max(size - max(0, added), VIEW_TOKENS // 2)
        grown = sum(piece.tokens for piece in (*records, *others)) + size
        most = min(int(policy.zone_limit * left), self.at.budget - raw - free)
        if grown > most:
            return None
        begin = joined[0].windows[0] if joined else view.boundary
        before = yield from cover.inside(self.roots, begin, view.boundary)
        covers = yield from cover.inside(self.roots, begin, part.boundary)
        piece = yield from self.zone.appended(
            [window for window in windows if window.ordinal < part.boundary],
            past,
            size,
            covers=covers,
            at=part.boundary,
            beside=older,
            joined=joined,
            before=before,
            others=others,
        )
        stays = {item.message.index for item in part.after}
        piece = replace(piece, runs=runs_of(i for i in each_of(piece.runs) if i in stays))
        wider = replace(view, boundary=part.boundary, pieces=(*others, piece), standing=records)
        cut = self._assemble(wider, part.after)
        # The new messages may have fewer lines than the piece has room for; the tree has more.
        return cut if cut.tokens >= self._least(shown) - 3 * pool.PIECE else None

    def _joined(
        self,
        pieces: Sequence[Piece],
        size: int,
        messages: int,
        *,
        fair: float,
        missing: int,
    ) -> tuple[int, int]:
        """Return how many pieces stay before a new one, and the size of the new one.

        The new piece, of ``size`` tokens for so many messages, may be pooled together with the
        pieces before it, into the ``fair`` share of all their messages. That sends the larger piece
        again and makes the zone smaller, but by no more than leaves the zone its ``missing``
        tokens. The first piece never joins; a rewrite pools it again.
        """
        best, number, joined = 0.0, len(pieces), size
        before = 0
        for place in range(len(pieces) - 1, 0, -1):
            if not self.zone.joins(pieces[place]):
                break
            before += pieces[place].tokens
            messages += pieces[place].messages
            together = max(int(fair * messages), VIEW_TOKENS // 2, before + missing)
            together = min(together, before + size - FRAME)
            gain = _ROOM * (before + size - together) - (together - size)
            if gain > best:
                best, number, joined = gain, place, together
        return number, joined

    def _rewrite(self, view: View, windows: Sequence[Node], shown: Sequence[Shown]) -> Reading[Cut]:
        """Make the zone one pooled view again, from the tree and from its present lines."""
        part = self._part(windows, shown, self._watermark)
        share = int(self.at.policy.zone_rewrite * self._left(shown))
        share = max(share, self._least(shown) - self.cost(part.raw))
        share = min(share, self._room(part.raw) - self._again(part.raw))
        kept = [unit for piece in view.pieces for unit in self.zone.lines_of(piece)]
        return (yield from self._planned(part, share, kept=kept, raw=part.past))

    def _least(self, shown: Sequence[Shown]) -> int:
        """Return the minimal size of the context after a collapse; 0 while the history is short.

        A short history that is compressed strongly loses little, and the next collapse is later.
        """
        at = self.at
        history = self.cost(shown) * at.state.next_index // max(1, len(shown))
        if history <= 2 * at.budget:
            return 0
        # The next line may be too long for the rest of a view, and the marks of gaps vary.
        return min(int(at.policy.replan * at.budget) + 2 * pool.PIECE, at.budget)

    @property
    def _watermark(self) -> int:
        """Return the minimal number of tokens that stay verbatim when windows collapse."""
        reserve = self.at.reserve
        return int(self.at.policy.watermark * self.at.budget) if reserve is None else reserve

    def _left(self, shown: Sequence[Shown]) -> int:
        """Return the budget without the caller's reserve, or what each collapse sends again.

        That is all turns that must stand but the newest one.
        """
        turns = self._staying(verbatim.pieces_of(shown), 0)
        again = self._again([item for piece in turns for item in piece])
        return self.at.budget - max(again, self.at.reserve or 0)

    def _room(self, raw: Sequence[Shown]) -> int:
        """Return the room for the zone next to ``raw``, less the part kept for new messages."""
        budget = self.at.budget
        return budget - self.cost(raw) - int(self.at.policy.free * budget)

    def _again(self, raw: Sequence[Shown]) -> int:
        """Return the tokens of ``raw`` that a collapse sends again: all but the newest turn."""
        pieces = verbatim.pieces_of(raw)
        newest = verbatim.newest(pieces, 1)
        return self.cost([item for piece in pieces[: len(pieces) - newest] for item in piece])

    def _part(self, windows: Sequence[Node], shown: Sequence[Shown], share: int) -> Part:
        """Divide the messages of the newest windows; the newest, about ``share`` tokens, stay."""
        pieces = self._staying(verbatim.pieces_of(shown), share)
        stays = {item.message.index for piece in pieces for item in piece}
        allowed = verbatim.allowed_boundaries(windows, self.opened, self.total)
        return self._divided(windows, shown, stays, allowed | {self.last})

    def _divided(
        self,
        windows: Sequence[Node],
        shown: Sequence[Shown],
        stays: Container[int],
        allowed: Iterable[int],
    ) -> Part:
        """Divide messages at the latest allowed boundary before all windows of those that stay."""
        ends = verbatim.window_of_each(windows, shown)
        held = [
            ordinal
            for item, ordinal in zip(shown, ends, strict=True)
            if ordinal is not None and item.message.index in stays
        ]
        begin = windows[0].ordinal if windows else self.total
        latest = min((self.last, *held))
        least = min(begin, self.last)
        boundary = max((at for at in allowed if begin <= at <= latest), default=least)
        left = [window for window in windows if window.ordinal >= boundary]
        begins = verbatim.starts(left, self.opened)
        after = verbatim.shown_from(begins, [item.message for item in shown])
        from_char = {item.message.index: item.begin for item in after}
        return Part(
            boundary,
            raw=[item for item in after if item.message.index in stays],
            older=[i for i in after if i.message.index not in stays and not i.empty],
            after=after,
            past=[item for item in shown if from_char.get(item.message.index) != item.begin],
        )

    def _staying(self, pieces: Sequence[list[Shown]], share: int) -> Sequence[list[Shown]]:
        """Choose the pieces that stay verbatim: the last turns, and more up to ``share``.

        The last turns stay if together they take at most a third of the budget; otherwise only the
        newest turn stays. A turn loses its oldest pieces if the minimum of the zone needs the room.
        """
        budget, turns = self.at.budget, self.at.policy.turns
        days = ["", *(day(piece[-1].message.created_at) for piece in pieces)]
        costs = [self._estimate(piece, before) for piece, before in zip(pieces, days, strict=False)]
        number = verbatim.newest(pieces, turns)
        spent = sum(costs[len(costs) - number :])
        if turns > 1 and spent > budget // 3:
            number = verbatim.newest(pieces, 1)
        spent = sum(costs[len(costs) - number :])
        most = budget - VIEW_TOKENS - pool.PIECE * len(self.roots)
        while number > 1 and spent > most:
            spent -= costs[len(costs) - number]
            number -= 1
        while number < len(pieces) and spent + costs[len(costs) - number - 1] <= share:
            number += 1
            spent += costs[len(costs) - number]
        return pieces[len(pieces) - number :]

    # -- planning both zones from the tree

    def replan(self, fullness: float) -> Reading[Cut]:
        """Plan both zones without a previous cut, filling about ``fullness`` of the budget.

        Everything is verbatim if that fits. Otherwise the newest messages take their share, and one
        pooled view of all other messages takes the remaining tokens.
        """
        budget, policy = self.at.budget, self.at.policy
        windows = (yield from self._newest_windows(budget)) or self.tail
        shown = yield from verbatim.read(self.at.state, windows)
        if (windows[0].ordinal if windows else self.total) == 0:
            cut = self._assemble(View(0, ()), shown)
            if cut.tokens <= budget:
                return cut
        yield from needs.at_length()
        limit = int(fullness * budget)
        share = int(policy.verbatim * budget) if self.at.reserve is None else self.at.reserve
        part = self._part(windows, shown, min(share, limit))
        room = budget - self.cost(part.raw)
        below = yield from cover.inside(self.roots, 0, part.boundary)
        if room >= VIEW_TOKENS + pool.PIECE * (len(below) + bool(part.older)):
            wish = max(limit - budget + room, int(policy.zone_rewrite * self._left(shown)))
            cut = yield from self._planned(part, min(room, wish))
            if cut.tokens <= budget:
                return cut
        return (yield from self._tight(limit, share))

    def _planned(
        self,
        part: Part,
        share: int,
        *,
        kept: Sequence[Unit] = (),
        raw: Sequence[Shown] = (),
    ) -> Reading[Cut]:
        """Show everything that does not stay raw in one pooled view of about ``share`` tokens."""
        below = yield from cover.inside(self.roots, 0, part.boundary)
        least = self.zone.least(below) + (pool.PIECE if part.older else 0)
        share = max(share, least)
        records = self._standing(part.raw)
        if share - sum(record.tokens for record in records) < least:
            records = ()
        share -= sum(record.tokens for record in records)
        if below or not part.older:
            pieces = yield from self.zone.pooled(
                below, share, beside=part.older, kept=kept, raw=raw
            )
        else:
            pieces = ((yield from self.zone.of_messages(part.older, share, at=part.boundary)),)
        return self._assemble(View(part.boundary, pieces, standing=records), part.after)

    def _newest_windows(self, most: int, *, begin: int = 0) -> Reading[list[Node]]:
        """Read windows from the newest back to ``begin``, until they exceed ``most`` tokens."""
        tokens = sum(window.tokens for window in self.opened)
        found: list[Node] = []
        end = self.total
        while end > begin and tokens <= most:
            start = max(begin, end - _STRIDE)
            read = yield from needs.windows(start, end)
            found = read + found
            tokens += sum(window.input_tokens for window in read)
            end = start
        return found

    def _tight(self, limit: int, share: int) -> Reading[Cut]:
        """Plan where even the open windows do not fit: their older messages become one view."""
        below = yield from cover.inside(self.roots, 0, self.last)
        shown = yield from verbatim.read(self.at.state, self.tail)
        pieces = verbatim.pieces_of(shown)
        newest = pieces[-1] if pieces else []
        older = [piece for piece in pieces[:-1] if any(not item.empty for item in piece)]
        group = self.cost(newest)
        needed = VIEW_TOKENS if below or older else 0
        minimum = group + needed + pool.PIECE * len(below)
        if not below:
            minimum = min(minimum, self.cost(shown))
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
        while older and self.cost([*older[-1], *raw]) <= min(share, group + spare // 2):
            raw = [*older.pop(), *raw]
        left = limit - self.cost(raw)
        records = self._standing(raw)
        taken = sum(record.tokens for record in records)
        if left - taken < needed + pool.PIECE * len(below):
            records, taken = (), 0
        left -= taken
        viewed = in_order(item for piece in older for item in piece)
        zone: list[Piece] = []
        if viewed:
            beyond = left - VIEW_TOKENS - pool.PIECE * len(below)
            part = VIEW_TOKENS // 2 + beyond // 3 if below else left
            zone.append((yield from self.zone.of_messages(viewed, part, at=self.last)))
            left -= zone[0].tokens
        zone[:0] = yield from self.zone.pooled(below, left)
        cut = self._assemble(View(self.last, tuple(zone), standing=records), [*viewed, *raw])
        return replace(cut, omitted=tuple(omitted))

    def _may_omit(self, *, group: int, minimum: int, roots: int) -> None:
        """Refuse a budget below the minimum, unless omission is allowed and is sufficient."""
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
        """Show as many of the newest messages as fit, if there is no room for any view."""
        windows = yield from self._newest_windows(self.at.budget)
        # The boundary is the earliest allowed one whose verbatim zone stays inside the budget.
        allowed = verbatim.allowed_boundaries(windows, self.opened, self.total)
        tokens = sum(window.tokens for window in self.opened)
        boundary = self.last
        for window in reversed(windows):
            tokens += window.input_tokens
            if tokens > self.at.budget:
                break
            if window.ordinal in allowed and window.ordinal < boundary:
                boundary = window.ordinal
        if boundary < self.last:
            after = [window for window in windows if window.ordinal >= boundary]
            wider = yield from verbatim.read(self.at.state, after)
            if self.cost(wider) <= self.at.budget:
                below = yield from cover.inside(self.roots, 0, boundary)
                newest, older = wider, ()
        raw, left = list(newest), list(older)
        while left and self.cost([*left[-1], *raw]) <= self.at.budget:
            raw = [*left.pop(), *raw]
        older_left = in_order(item for piece in left for item in piece)
        omitted = (*map(_omitted, below), *map(omitted_message, older_left))
        return replace(self._assemble(View(boundary, ()), raw), omitted=omitted)

    # -- standing instructions

    def _standing(
        self, raw: Sequence[Shown], before: Sequence[Piece] = (), kept: int = -1
    ) -> tuple[Piece, ...]:
        """Return the records of the instructions that ``raw`` does not say.

        Records ``before`` that stand within the first ``kept`` pieces may stay in place; -1 means
        that the whole zone is made again. One record names what was said when the zone
        was made, a second one what was said since, after the newest piece. If something in the
        first one holds no more, or a command has no room in the second, a single one names all.
        """
        missing = standing.hidden(self.at.instructions, raw)
        staying = [record for record in before if record.windows[0] <= kept]
        serving = {one.id for one in missing}
        if staying and serving.issuperset(standing.ids_of(staying)):
            for records in (staying, staying[:1]):
                named = standing.ids_of(records)
                later = [one for one in missing if one.id not in named]
                if not later:
                    return tuple(records)
            room = self.at.standing_room - staying[0].tokens
            second = self._record(later, room, kept + 1)
            left_out = {one.id for one in later}.difference(
                standing.ids_of([second] if second else ())
            )
            # To name one more preference is not worth a prompt that a provider has cached.
            if not any(one.kind == "instruction" for one in later if one.id in left_out):
                return (staying[0], second) if second else (staying[0],)
        found = self._record(missing, self.at.standing_room, kept + 1)
        return (found,) if found else ()

    def _record(self, missing: Sequence[Instruction], room: int, at: int) -> Piece | None:
        if not missing or room <= 0:
            return None
        return standing.record(self.at.writer, missing, room, name=self.zone.name(), at=at)

    # -- used by all plans

    def _estimate(self, shown: Sequence[Shown], day_before: str = "") -> int:
        """Return about the tokens of these messages, without counting a long slice.

        Most pieces are only looked at, and counting a long text takes long. A slice has its share
        of the message's tokens by characters; the cut itself is counted exactly.
        """
        long = [item for item in shown if item.partial and item.length > _LONG]
        counted = self.cost(
            [item for item in shown if item not in long] if long else shown, day_before
        )
        return counted + sum(
            item.message.tokens * item.length // len(body(item.message.message)) for item in long
        )

    def _assemble(self, view: View, shown: Sequence[Shown]) -> Cut:
        """Render the summary zone, oldest piece first, and then the raw messages."""
        view = replace(view, serial=self.zone.serial, gone=self.at.gone)
        lead, write = self.at.lead, self.at.writer.messages
        apart = {item.message.index for item in lead}
        raw = [
            item
            for item in in_order(shown)
            if item.message.index not in apart and not view.holds(item.message.index)
        ]
        blocks = (*view.blocks(), *write(raw))
        return Cut(view, (*lead, *raw), blocks, lead=tuple(write(lead)))


def _omitted(item: Covered) -> Omitted:
    """Describe a node that is omitted; slices of one message count as one message."""
    return Omitted(item.id, item.span, min(item.messages, item.span.stop - item.span.start))


def omitted_message(item: Shown) -> Omitted:
    """Describe a message that is omitted."""
    index = item.message.index
    return Omitted(f"m{index}", Span(index, index + 1), 1)


def lead_of(messages: Sequence[StoredMessage]) -> tuple[Shown, ...]:
    """Return the system messages that lead a session, of which ``messages`` is the beginning."""
    led = takewhile(lambda stored: stored.role == "system", messages)
    return tuple(item for item in map(Shown, led) if not item.empty)


def said_beside(at: Situation, found: Cut) -> Piece | None:
    """Return a record of the standing instructions that the cut does not show, in its free room.

    The zone of a cut has a record of its own, so this is for strategies without one.
    """
    named = standing.ids_of(found.view.standing)
    missing = standing.hidden(at.instructions, [*found.shown, *found.pinned], named)
    room = at.standing_room - sum(piece.tokens for piece in found.view.standing)
    room = min(room, at.budget - found.tokens)
    return standing.record(at.writer, missing, room, name=_BESIDE, at=1)
