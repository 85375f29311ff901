"""Decides the exact cover of a session in a token budget, in two zones, and keeps it stable.

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

from bisect import bisect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, takewhile

from hiermem import needs
from hiermem.config import ContextPolicy
from hiermem.context import lines
from hiermem.context import render as verbatim
from hiermem.context import view as cover
from hiermem.context import zone as pins
from hiermem.context.render import Block, Excerpts, Shown, Writer, in_order, name_of
from hiermem.context.view import Covered, Piece, View
from hiermem.context.zone import VIEW_TOKENS, Pin, ZoneMaker
from hiermem.errors import BudgetTooSmallError
from hiermem.needs import Reading
from hiermem.text.fence import NOTICE
from hiermem.text.measure import body, day
from hiermem.tree.fold import SessionState
from hiermem.types import Node, Span, StoredMessage
from hiermem.types.ranges import each_of, ranges_of

# The shares below are of the budget; ``benchmarks/frontier.py`` found them. Those of the zone are
# of the budget less the reserve for messages.
#: The zone is rewritten if it would exceed this share, or would leave less than ``_FREE`` to new
#: messages; then it gets the size ``_ZONE_REWRITE``.
_ZONE_LIMIT = 0.90
_FREE = 0.05
_ZONE_REWRITE = 0.40
#: How full a collapse leaves the context, once the history is twice the budget. A cut that frees
#: nothing would be made again with every message, so this and ``_FREE`` are less than all of it.
_REPLAN = 0.66
#: How full the first plan is, and any plan where no provider cache can be lost; the part of it that
#: the newest messages have.
_REPLAN_COLD = 0.95
_VERBATIM = 0.25
#: If the zone would be smaller than this fraction of the size that a rewrite would give it, it is
#: rewritten instead of extended: a long turn has compressed it too much.
_PRESSED = 0.75
#: How many tokens may be sent again to make the zone one token smaller, when the new piece is
#: pooled together with the pieces before it.
_ROOM = 0.8
#: Above this many characters a slice is not counted to see whether it stays verbatim.
_LONG = 50_000
#: A previous cut is not extended if the messages behind its zone take more than this many times the
#: budget: more than a budget of them is new then, and a plan from the tree reads less.
_GAP = 2
#: The part of the budget that the calls of the newest turn, but for the last, may take verbatim.
_CALLS = 1 / 3
#: The part of the room beside excerpts that longer ones keep when they have to give way, and that a
#: new result leaves to the messages that follow it.
_GIVES_WAY = 0.25
#: An excerpt becomes longer, by lines of a shape that stands already, only if so much of the budget
#: is free, and by no fewer tokens.
_MUCH_FREE = 0.25
_LEAST_LONGER = 60
#: The most messages that may lead a session.
MOST_LEADING = 4
#: A new plan that is less full than this share of its limit is made again, with more messages.
_FULL = 0.9
#: A collapse sends again no more of the budget than this for the sake of a whole window.
_EDGE = 1 / 16
#: Number of windows per read when the planner walks back from the newest window.
_STRIDE = 16


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything that a cut depends on, except for the data that it reads.

    ``budget`` is the number of tokens that the cut itself may spend, as ``writer`` counts them.
    ``overhead`` is the number of tokens that the caller's system prompt, tools and recall take in
    addition (used in errors only). ``reserve`` is the caller's size for the verbatim zone, or None
    for the policy's size. ``view`` is the prefix of the names of the trimmed views, "" for the
    default view. Those of the ``pins`` that no raw message says take at most ``pin_room`` tokens of
    the budget. Of a profile, ``levels`` are those whose summaries may be shown, and ``recent`` is
    the number of messages that stay verbatim. ``recall`` is the number of tokens that are kept for
    recall, which needs none while the whole history fits. ``lead`` are the system messages that
    lead the session and every context of it, beside the budget; ``too_long`` is their number of
    tokens where they would take more than half of it and so do not lead.
    """

    state: SessionState
    budget: int
    writer: Writer
    policy: ContextPolicy = field(default_factory=ContextPolicy)
    overhead: int = 0
    reserve: int | None = None
    view: str = ""
    sticky: bool = True
    cache_cold: bool = False
    allow_omission: bool = False
    pins: tuple[Pin, ...] = ()
    pin_room: int = 0
    levels: frozenset[int] | None = None
    recent: int | None = None
    lead: tuple[Shown, ...] = ()
    too_long: int = 0
    notice: int = 0
    recall: int = 0

    def unneeded(self, blocks: Iterable[Block]) -> int:
        """Return the tokens of the notice if no block is a record, and so none needs it, else 0."""
        return 0 if any(block.text for block in blocks) else self.notice

    def free(self, blocks: Iterable[Block]) -> int:
        """Return what blocks leave of the budget; below 0 if they take of what recall has."""
        taken = [(block.tokens, block.text.startswith(NOTICE)) for block in blocks]
        # The budget is what the notice leaves; the tokens of a block that bears it include it.
        notice = self.notice if any(bears for _, bears in taken) else 0
        return self.budget + notice - sum(tokens for tokens, _ in taken)


@dataclass(frozen=True, slots=True)
class Omitted:
    """A stretch that does not fit the budget and that the caller allowed to be omitted."""

    name: str
    span: Span
    messages: int


@dataclass(frozen=True, slots=True)
class Cut:
    """A decided cut: its sticky state, what it renders, and what it omits.

    ``lead`` stands before ``blocks``, and outside their budget.
    """

    view: View
    shown: tuple[Shown, ...]
    blocks: tuple[Block, ...]
    omitted: tuple[Omitted, ...] = ()
    lead: tuple[Block, ...] = ()

    @property
    def tokens(self) -> int:
        """Return the tokens of all blocks together, without the lead."""
        return sum(block.tokens for block in self.blocks)

    @property
    def is_whole(self) -> bool:
        """Return whether all messages are verbatim."""
        return not (self.view.pieces or self.view.boundary or self.omitted)


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


def newest_sealed(state: SessionState) -> Reading[list[Node]]:
    """Return the sealed windows from the window of the newest message on; [] if that is open.

    If the newest message is sliced, its window is the window of its last slice.
    """
    newest = state.next_index - 1
    windows: list[Node] = []
    if any(window.last_index == newest for window in state.open_windows()):
        return windows
    end = state.next_ordinal(1)
    while end > 0:
        begin = max(0, end - _STRIDE)
        windows = (yield from needs.windows(begin, end)) + windows
        holding = [window.ordinal for window in windows if window.span.stop == newest + 1]
        if holding:
            return [window for window in windows if window.ordinal >= holding[-1]]
        end = begin
    return []


def select(at: Situation, previous: View | None, excerpts: Excerpts) -> Reading[Cut]:
    """Return the cut for a situation, with excerpts of long tool results that do not fit whole.

    Raises BudgetTooSmallError as ``Planner.select`` does.
    """
    kept = previous if at.sticky and not at.cache_cold else None

    def selected() -> Reading[Cut]:
        planner = Planner(at, previous)
        fitted = yield from verbatim.with_excerpts(planner.select(), excerpts)
        if not excerpts.shortened or fitted.omitted:
            return fitted
        if fitted.is_whole:
            unshortened = replace(excerpts, most=None)
            if whole := (yield from verbatim.with_excerpts(planner.whole(), unshortened)):
                excerpts.shortened.clear()
                return whole
        return planner.lengthened(fitted, kept, excerpts)

    excerpts.images_from = kept.images if kept else (0, 0)
    fitted = yield from with_images(selected, at, excerpts, anew=kept is None)
    return replace(fitted, view=replace(fitted.view, images=excerpts.images_from))


def with_images(
    decide: Callable[[], Reading[Cut]], at: Situation, excerpts: Excerpts, *, anew: bool
) -> Reading[Cut]:
    """Run a decision until no more images stand in its cut than the policy allows.

    The newest stand, all that are allowed if the cut is made ``anew``. Otherwise half of them go at
    once, because a message whose image gives way is sent again with all that follows it.
    """
    most = at.policy.images
    keep = most if anew else (most + 1) // 2
    while True:
        fitted = yield from decide()
        first = verbatim.newest_images(fitted.blocks, most, keep)
        if first is None:
            return fitted
        excerpts.images_from = first
        excerpts.shortened.clear()


class Planner:
    """Plans one selection. Its methods are the steps of the policy, cheapest first."""

    def __init__(self, situation: Situation, previous: View | None) -> None:
        self.at, self.previous = situation, previous
        serial = previous.serial if previous else 0
        self.led: dict[int | None, str | None] = {
            item.message.index: None for item in situation.lead
        }
        self.zone = ZoneMaker(situation.writer, serial, situation.view, said=self.led)
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
        previous = self.previous
        self.tail = yield from newest_sealed(self.at.state)
        self.last = self.total - len(self.tail)
        if self.at.recall and (whole := (yield from self.whole())):
            return whole
        if not self.at.sticky:
            return (yield from self.replan(1.0))
        if previous is None or self.at.cache_cold or self.at.budget <= 0:
            return (yield from self.replan(_REPLAN_COLD))
        if previous.boundary > self.last or self._pinned(previous.pieces) > self.at.pin_room:
            return (yield from self.replan(_REPLAN))
        # The view may hold open messages, which are not new then, however long they are.
        most = _GAP * self.at.budget + sum(window.tokens for window in self.opened)
        windows = yield from self._newest_windows(most, begin=previous.boundary)
        if windows and windows[0].ordinal > previous.boundary:
            return (yield from self.replan(_REPLAN_COLD))
        kept = yield from self.keep(previous, windows)
        return kept or (yield from self.replan(_REPLAN))

    def whole(self) -> Reading[Cut | None]:
        """Return a cut that shows the whole history verbatim, if that fits in place of recall."""
        windows = yield from self._newest_windows(self.at.budget + self.at.recall + self.at.notice)
        if (windows[0].ordinal if windows else self.total) > 0:
            return None
        shown = yield from verbatim.read(self.at.state, windows)
        cut = self._assemble(View(0, ()), shown)
        return cut if self._fits(cut, self.at.recall) and not self._is_long(shown) else None

    def lengthened(self, fitted: Cut, before: View | None, excerpts: Excerpts) -> Cut:
        """Show more of tool results in the room that a cut with excerpts leaves, the newest first.

        What the view ``before`` showed of each stays while all fits. When it does not, they give up
        most of the room at once, because a result that is shown otherwise is sent again with all
        that follows it.
        """
        if not self._fits(fitted):
            return fitted  # Excerpts of the whole history may take of recall's room.
        short = [i.message for i in reversed(fitted.shown) if i.message.index in excerpts.shortened]
        longer = self._kept_longer(short, fitted, before, excerpts) if before else None
        if longer is None:
            fullness = _REPLAN_COLD if self.at.sticky else 1.0
            free = int(fullness * self.at.budget) - fitted.tokens
            room = int(_GIVES_WAY * free) if before else free
            sizes = self._sizes(short, excerpts, free, whole=room, longer=room, anew=not before)
            longer = self._longer(sizes, short, fitted, excerpts)
        while not self._fits(longer):  # A quoted result takes more than its own tokens.
            sizes = dict(longer.view.results)
            sizes[min(index for index, size in sizes.items() if size)] = 0
            longer = self._longer(sizes, short, fitted, excerpts)
        for item in longer.shown:
            if item.message is excerpts.shortened.get(item.message.index):
                del excerpts.shortened[item.message.index]
        return longer

    def _kept_longer(
        self, short: Sequence[StoredMessage], fitted: Cut, before: View, excerpts: Excerpts
    ) -> Cut | None:
        """Return a cut that shows of each result what ``before`` showed, and more of new ones.

        A result counts as new, too, if it stands behind a zone that has changed, and was not shown
        longer. Return None if the results do not fit, or if one that arrived has less room than
        is due to it: none while older ones have some, or not all that would have it stand whole.
        """
        sizes = dict(before.results)
        has_moved = before.pieces != fitted.view.pieces
        stood = self._longer(sizes, short, fitted, excerpts)
        free = self.at.budget + self.at.unneeded(stood.blocks) - stood.tokens
        new = [each for each in short if not sizes.get(each.index)]
        arrived = [each.index for each in new if each.index not in sizes]
        new = [each for each in new if has_moved or each.index in arrived]
        longer = int((1 - _GIVES_WAY) * free)
        if stood.tokens > fitted.tokens:
            longer = min(longer, excerpts.newest_most)  # The next one is likely to be as long.
        more = self._sizes(new, excerpts, free, whole=free, longer=longer)
        if free < 0 or any(
            index not in more
            and (stood.tokens > fitted.tokens or not self._is_large(index, excerpts))
            for index in arrived
        ):
            return None
        return self._longer(sizes | more, short, fitted, excerpts)

    def _is_large(self, index: int, excerpts: Excerpts) -> bool:
        """Return whether a result is too long to stand whole."""
        return excerpts.shortened[index].tokens > excerpts.newest_most

    def _sizes(
        self,
        short: Iterable[StoredMessage],
        excerpts: Excerpts,
        free: int,
        *,
        whole: int,
        longer: int,
        anew: bool = False,
    ) -> dict[int, int]:
        """Return the tokens that are shown of excerpted results, which come newest first.

        Those that are not too long stand whole as far as they take ``whole`` more tokens. If much
        stays free, what that leaves of ``longer`` goes to the others, half of it to each and all to
        the last; but a result that would stand whole in more room waits for that, unless the cut is
        made ``anew``.
        """
        sizes: dict[int, int] = {}
        others: list[StoredMessage] = []
        for stored in short:
            size = excerpts.shortened[stored.index].tokens
            more = size - stored.tokens
            is_large = self._is_large(stored.index, excerpts)
            if not is_large and more <= whole:
                sizes[stored.index] = size
                free, whole, longer = free - more, whole - more, longer - more
                continue
            whole = whole if is_large else 0
            if is_large or anew:
                others.append(stored)
        if free < _MUCH_FREE * self.at.budget:
            return sizes
        for place, stored in enumerate(others, 1):
            share = longer if place == len(others) else longer // 2
            if share < _LEAST_LONGER:
                break
            sizes[stored.index] = stored.tokens + share
            longer -= share
        return sizes

    def _longer(
        self,
        sizes: Mapping[int, int],
        short: Sequence[StoredMessage],
        fitted: Cut,
        excerpts: Excerpts,
    ) -> Cut:
        """Return the cut with at most so many tokens of each result that is ``short``."""
        shown = [
            replace(
                item,
                message=excerpts.lengthened(item.message, sizes.get(item.message.index, 0)),
            )
            for item in fitted.shown
        ]
        results = tuple((each.index, sizes.get(each.index, 0)) for each in reversed(short))
        return self._assemble(replace(fitted.view, results=results), shown)

    # -- keeping the previous cut

    def keep(self, view: View, windows: Sequence[Node]) -> Reading[Cut | None]:
        """Append the new messages; collapse or rewrite at the budget; None means re-plan."""
        shown = yield from verbatim.read(self.at.state, windows)
        kept = self._assemble(view, shown)
        if self._fits(kept) and not self._is_long(kept.shown):
            return kept
        yield from needs.at_length()
        if self._fits(kept):
            part = self._part(windows, shown, 0)
            if not self._has_room(part, (yield from cover.inside(self.roots, 0, part.boundary))):
                return kept  # No new plan would show fewer messages.
        cut = yield from self._append(view, windows, shown)
        if cut is None or not self._fits(cut):
            cut = yield from self._rewrite(windows, shown)
        if self._fits(kept):
            # An exchange stays whole, so there may be as many messages in any cut.
            return min(kept, cut, key=lambda cut: (not self._fits(cut), _spoken(cut.shown)))
        return cut if self._fits(cut) else None

    def _fits(self, cut: Cut, more: int = 0) -> bool:
        """Return whether a cut is within the budget."""
        return cut.tokens <= self.at.budget + more + self.at.unneeded(cut.blocks)

    def _has_room(self, part: Part, below: Sequence[Covered]) -> bool:
        """Return whether a view of nodes ``below`` and of older messages fits beside raw ones."""
        least = VIEW_TOKENS + lines.PIECE * (len(below) + bool(part.older))
        return self.at.budget - self.cost(part.raw) >= least

    def _is_long(self, shown: Sequence[Shown]) -> bool:
        """Return whether twice as many messages are raw as a profile asked for."""
        recent = self.at.recent
        return recent is not None and _spoken(shown) > 2 * recent

    def _append(
        self, view: View, windows: Sequence[Node], shown: Sequence[Shown]
    ) -> Reading[Cut | None]:
        """Move the oldest verbatim messages to the end of the zone, as a piece of a fair share.

        Return None if the zone would exceed its limit, or would leave new messages too little room.
        """
        part = self._part(windows, shown, self.at.reserve or 0)
        past = [item for item in part.past if not view.holds(item.message.index)]
        older = [item for item in part.older if not view.holds(item.message.index)]
        going = [item for item in (*past, *older) if not item.empty]
        if not view.pieces or not (going or part.boundary > view.boundary):
            return None
        if self.at.levels is not None:
            return None  # A piece is made of messages, too.
        left, raw = self._left, self.cost(part.raw)
        share = int(_ZONE_REWRITE * left)
        free = int(_FREE * self.at.budget)
        missing = self._least(shown) - raw - view.tokens
        fair = share / max(1, sum(piece.messages for piece in view.pieces) + len(going))
        size = max(int(fair * len(going)), VIEW_TOKENS // 2)
        anew = min(share, self.at.budget - raw - free)
        if view.tokens + size < _PRESSED * anew or missing > self.cost(going):
            return None
        size = max(size, missing)
        number, size = self._joined(view.pieces, size, len(going), fair=fair, missing=missing)
        others, joined = view.pieces[:number], view.pieces[number:]
        head = self._head(part.raw, self.at.pin_room, others)
        said = set(pins.indices_of(others))
        left_out = pins.hidden(self.at.pins, part.raw, said | {pin.index for pin in head})
        if any(pin.index > index for pin in left_out for index in said):
            return None  # The others would say an older pin than one that has no room.
        size = max(size, VIEW_TOKENS // 2 + pins.tokens_of(head, self.at.writer.count))
        grown = sum(piece.tokens for piece in others) + size
        most = min(int(_ZONE_LIMIT * left), self.at.budget - raw - free)
        if grown > most:
            return None
        begin = joined[0].windows[0] if joined else view.boundary
        covers = yield from cover.inside(self.roots, begin, part.boundary)
        piece = yield from self.zone.appended(
            [window for window in windows if window.ordinal < part.boundary],
            past,
            size,
            covers=covers,
            at=part.boundary,
            beside=older,
            others=others,
            joined=joined,
            head=head,
        )
        stays = {item.message.index for item in part.after}
        piece = replace(piece, runs=ranges_of(i for i in each_of(piece.runs) if i in stays))
        wider = replace(view, boundary=part.boundary, pieces=(*others, piece))
        cut = self._assemble(wider, part.after)
        # The new messages may have fewer lines than the piece has room for; the tree has more.
        return cut if cut.tokens >= self._least(shown) - 3 * lines.PIECE else None

    def _joined(
        self, pieces: Sequence[Piece], size: int, messages: int, *, fair: float, missing: int
    ) -> tuple[int, int]:
        """Return how many pieces stay before a new one, and the size of the new one.

        The new piece, of ``size`` tokens for so many messages, takes in the last pieces, into the
        ``fair`` share of all their messages, if at most ``_ROOM`` tokens are sent again for each
        token by which the zone gets smaller; the zone keeps its ``missing`` tokens. The first piece
        never joins: a rewrite pools it again.
        """
        best, number, joined, before = 0.0, len(pieces), size, 0
        for place in range(len(pieces) - 1, 0, -1):
            if not self.zone.joins(pieces[place]):
                break
            before += pieces[place].tokens
            messages += pieces[place].messages
            together = max(int(fair * messages), VIEW_TOKENS // 2, before + missing)
            together = min(together, before + size)
            gain = _ROOM * (before + size - together) - (together - size)
            if gain > best:
                best, number, joined = gain, place, together
        return number, joined

    def _rewrite(self, windows: Sequence[Node], shown: Sequence[Shown]) -> Reading[Cut]:
        """Make the zone one pooled view again, from the tree and the messages that leave."""
        part = self._part(windows, shown, self.at.reserve or 0)
        raw = self.cost(part.raw)
        share = max(int(_ZONE_REWRITE * self._left), self._least(shown) - raw)
        share = min(share, self.at.budget - raw - int(_FREE * self.at.budget))
        below = yield from cover.inside(self.roots, 0, part.boundary)
        past = part.past if self.at.levels is None else ()
        return (yield from self._planned(part, share, below, raw=past))

    def _least(self, shown: Sequence[Shown]) -> int:
        """Return the minimal size of the context after a collapse; 0 while the history is short.

        A short history that is compressed strongly loses little, and the next collapse is later.
        """
        at = self.at
        history = self.cost(shown) * at.state.next_index // max(1, len(shown))
        if history <= 2 * at.budget:
            return 0
        # The next line may be too long for the rest of a view, and the marks of gaps vary.
        return min(int(_REPLAN * at.budget) + 2 * lines.PIECE, at.budget)

    @property
    def _left(self) -> int:
        """Return the budget without the caller's reserve."""
        return self.at.budget - (self.at.reserve or 0)

    def _part(self, windows: Sequence[Node], shown: Sequence[Shown], share: int) -> Part:
        """Divide the messages of the newest windows; the newest, about ``share`` tokens, stay.

        They begin with a whole window, if that fits: of a window that is cut, only a few lines
        would stand. Not where the caller says how much stays.
        """
        pieces = verbatim.pieces_of(shown)
        allowed = verbatim.allowed_boundaries(windows, self.opened, self.total) | {self.last}
        divided = self._divided(windows, shown, self._staying(pieces, share), allowed)
        if not divided.older or self.at.recent is not None or self.at.reserve is not None:
            return divided
        most = max(share, int(_EDGE * self.at.budget))
        latest = self._divided(windows, shown, self._staying(pieces, 0), allowed).boundary
        for at in sorted((at for at in allowed if at <= latest), reverse=True):
            part = self._divided(windows, shown, (), {at})
            if self.cost(part.after) > most:
                break
            divided = replace(part, raw=part.after, older=[])
        return divided

    def _divided(
        self,
        windows: Sequence[Node],
        shown: Sequence[Shown],
        staying: Sequence[list[Shown]],
        allowed: Iterable[int],
    ) -> Part:
        """Divide messages at the latest allowed boundary before all windows of those that stay."""
        stays = {item.message.index for item in flat(staying)}
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
        led_or_stays = stays | self.led.keys()
        return Part(
            boundary,
            raw=[item for item in after if item.message.index in stays],
            older=[i for i in after if i.message.index not in led_or_stays and not i.empty],
            after=after,
            past=[item for item in shown if from_char.get(item.message.index) != item.begin],
        )

    def _staying(self, pieces: Sequence[list[Shown]], share: int) -> Sequence[list[Shown]]:
        """Choose the pieces that stay verbatim: the last turns, and more up to ``share``.

        The last turns stay if together they take at most a third of the budget; otherwise only the
        newest turn stays. A turn loses its oldest pieces if the minimum of the zone needs the room,
        or if its calls take more than their part of the budget, the last of them aside. The user's
        message that opened it stays if it fits at all, because what follows answers it.
        """
        budget, turns = self.at.budget, self.at.policy.turns
        days = ["", *(day(piece[-1].message.created_at) for piece in pieces)]
        costs = [self._estimate(piece, before) for piece, before in zip(pieces, days, strict=False)]
        most = budget - VIEW_TOKENS - lines.PIECE * len(self.roots)
        if asked := self._asked(pieces, most + VIEW_TOKENS // 2):
            place = pieces.index(asked)
            costs[-1], costs[place] = costs[-1] + costs[place], 0
        taken = list(accumulate(reversed(costs or [0]), initial=0))
        number = verbatim.newest(pieces, turns)
        if turns > 1 and taken[number] > budget // 3:
            number = verbatim.newest(pieces, 1)
        if self.at.recent is not None:
            share, number = 0, 1
            while number < len(pieces) and _spoken(flat(pieces[-number:])) < self.at.recent:
                number += 1
        calls = [
            cost if any(item.message.role == "tool" for item in piece) else 0
            for piece, cost in zip(pieces, costs, strict=True)
        ]
        most_called = _CALLS * budget if self.at.recent is None else budget
        while number > 1 and (taken[number] > most or sum(calls[-number:-1]) > most_called):
            number -= 1
        first = len(pieces) - max(number, bisect(taken, share) - 1)
        return [piece for at, piece in enumerate(pieces) if at >= first or piece is asked]

    def _asked(self, pieces: Sequence[list[Shown]], room: int) -> list[Shown]:
        """Return the user's message that the newest piece follows, if both fit; else []."""
        asked, newest = [p for p in pieces if p[0].message.role == "user"][-1:], pieces[-1:]
        fits = asked != newest and self.cost(flat([*asked, *newest])) <= room
        return asked[0] if asked and fits else []

    # -- planning both zones from the tree

    def replan(self, fullness: float) -> Reading[Cut]:
        """Plan both zones without a previous cut, filling about ``fullness`` of the budget.

        Everything is verbatim if that fits. Otherwise the newest messages take their share, and one
        pooled view of all other messages takes the remaining tokens.
        """
        budget = self.at.budget
        windows = yield from self._newest_windows(budget + self.at.notice)
        shown = yield from verbatim.read(self.at.state, windows)
        if (windows[0].ordinal if windows else self.total) == 0:
            cut = self._assemble(View(0, ()), shown)
            if self._fits(cut) and not self._is_long(shown):
                return cut
        yield from needs.at_length()
        limit = int(fullness * budget)
        share = int(_VERBATIM * budget) if self.at.reserve is None else self.at.reserve
        part = self._part(windows, shown, min(share, limit))
        room = budget - self.cost(part.raw)
        below = yield from cover.inside(self.roots, 0, part.boundary)
        if self._has_room(part, below):
            wish = max(limit - budget + room, int(_ZONE_REWRITE * self._left))
            cut = yield from self._planned(part, min(room, wish), below)
            if cut.tokens < _FULL * limit and self.at.recent is None:
                # All lines that there are take less than their share: messages take the rest.
                more = self._part(windows, shown, self.cost(part.raw) + limit - cut.tokens)
                below = yield from cover.inside(self.roots, 0, more.boundary)
                wider = yield from self._planned(more, limit - self.cost(more.raw), below)
                cut = wider if cut.tokens < wider.tokens <= budget else cut
            if self._fits(cut):
                return cut
        return (yield from self._tight(limit, share))

    def _planned(
        self, part: Part, share: int, below: Sequence[Covered], *, raw: Sequence[Shown] = ()
    ) -> Reading[Cut]:
        """Show nodes ``below`` and what does not stay raw in one view of about ``share`` tokens."""
        least = VIEW_TOKENS // 2 + lines.PIECE * len(below) if below else 0
        least += lines.PIECE if part.older else 0
        share = max(share, least)
        # The least counts more for the frame of a view than that takes.
        head = self._head(part.raw, share - least + VIEW_TOKENS // 4)
        pieces = yield from self.zone.pooled(
            below,
            share,
            beside=part.older,
            raw=raw,
            levels=self.at.levels,
            head=head,
            at=part.boundary,
        )
        return self._assemble(View(part.boundary, pieces), part.after)

    def _newest_windows(self, most: int, *, begin: int = 0) -> Reading[list[Node]]:
        """Read windows from the newest back to ``begin``, until they exceed ``most`` tokens.

        The windows of the tail, which stay verbatim, are read in any case.
        """
        tokens = sum(window.tokens for window in self.opened)
        windows: list[Node] = []
        end = self.total
        while end > begin and (tokens <= most or end > self.last):
            start = max(begin, end - _STRIDE)
            read = yield from needs.windows(start, end)
            windows = read + windows
            tokens += sum(window.input_tokens for window in read)
            end = start
        return windows

    def _tight(self, limit: int, share: int) -> Reading[Cut]:
        """Plan where even the open windows do not fit: their older messages become one view."""
        below = yield from cover.inside(self.roots, 0, self.last)
        shown = yield from verbatim.read(self.at.state, self.tail)
        pieces = verbatim.pieces_of(shown)
        older = [
            p for p in pieces[:-1] if not all(i.empty or i.message.index in self.led for i in p)
        ]
        least = (VIEW_TOKENS if below or older else 0) + lines.PIECE * len(below)
        asked = self._asked(pieces, self.at.budget - least)
        older = [piece for piece in older if piece is not asked]
        newest = [*asked, *flat(pieces[-1:])]
        group = self.cost(newest)
        minimum = group + least
        if not below or minimum > self.at.budget:
            # The whole history may take less than a view of it.
            windows = yield from self._newest_windows(minimum + self.at.notice)
            if not below or (windows and windows[0].ordinal == 0):
                shown = yield from verbatim.read(self.at.state, windows)
                whole = self._assemble(View(0, ()), shown)
                if self._fits(whole):
                    return whole
                minimum = min(minimum, whole.tokens - self.at.unneeded(whole.blocks))
        omitted: list[Omitted] = []
        if minimum > self.at.budget:
            self._may_omit(group=group, minimum=minimum, roots=len(below))
            room = self.at.budget - group - VIEW_TOKENS
            if room < 0:
                while older and self.cost([*older[-1], *newest]) <= self.at.budget:
                    newest = [*older.pop(), *newest]
                unseen = map(omitted_message, in_order(flat(older)))
                cut = self._assemble(View(self.last, ()), newest)
                return replace(cut, omitted=(*map(_omitted, below), *unseen))
            left_out = len(below) - room // lines.PIECE
            omitted = [_omitted(item) for item in below[:left_out]]
            below = below[left_out:]
            minimum = group + VIEW_TOKENS + lines.PIECE * len(below)
        limit = max(limit, minimum)
        spare = limit - minimum
        while older and self.cost([*older[-1], *newest]) <= min(share, group + spare // 2):
            newest = [*older.pop(), *newest]
        viewed = in_order(flat(older))
        part = Part(self.last, newest, viewed, after=[*viewed, *newest], past=[])
        cut = yield from self._planned(part, limit - self.cost(newest), below)
        return replace(cut, omitted=tuple(omitted))

    def _may_omit(self, *, group: int, minimum: int, roots: int) -> None:
        """Refuse a budget below the minimum, unless omission is allowed and is sufficient."""
        budget, overhead = self.at.budget, self.at.overhead
        if self.at.allow_omission and group <= budget:
            return
        why = f"the newest exchange group takes {group} tokens"
        if not self.at.allow_omission and minimum > group:
            why += f" and {roots} root summaries with the older open messages the rest"
        if budget < 0:
            why += f", and the system prompt, tools and recall take {overhead}"
        raise BudgetTooSmallError(
            budget=budget + overhead,
            minimum=(group if self.at.allow_omission else minimum) + overhead,
            why=why,
            omission=group <= budget,
        )

    def _head(
        self, raw: Sequence[Shown], room: int, others: Sequence[Piece] = ()
    ) -> tuple[Pin, ...]:
        """Return the pins for a head, which neither ``raw`` nor the pieces ``others`` say.

        They take at most ``room`` tokens, or what the others leave of the room for pins.
        """
        named = pins.indices_of(others)
        stood = self._pinned(others)
        missing = pins.hidden(self.at.pins, raw, named)
        head = pins.head_of(missing, min(room, self.at.pin_room - stood), self.at.writer.count)
        indices = {*named, *(pin.index for pin in head)}
        said = {p.text.casefold() for p in self.at.pins if p.index in indices}
        equal = (p for p in self.at.pins if p.text.casefold() in said)
        self.zone.said = {**self.led, **{p.index: p.text for p in equal}}
        return head

    def _pinned(self, pieces: Sequence[Piece]) -> int:
        """Return about the tokens of the lines of pins in pieces."""
        return sum(self.at.writer.count(piece.head) for piece in pieces if piece.head)

    # -- used by all plans

    def _estimate(self, shown: Sequence[Shown], day_before: str = "") -> int:
        """Return about the tokens of these messages, without counting a long slice.

        Most pieces are only looked at, and counting a long text takes long. A slice has its share
        of the message's tokens by characters; the cut itself is counted exactly.
        """
        long = [item for item in shown if item.partial and item.length > _LONG]
        counted = self.cost([item for item in shown if item not in long], day_before)
        return counted + sum(
            item.message.tokens * item.length // len(body(item.message.message)) for item in long
        )

    def _assemble(self, view: View, shown: Sequence[Shown]) -> Cut:
        """Render the summary zone, oldest piece first, and then the raw messages."""
        view = replace(view, serial=self.zone.serial)
        lead, write = self.at.lead, self.at.writer.messages
        raw = [item for item in in_order(shown) if item.message.index not in self.led]
        raw = [item for item in raw if not view.holds(item.message.index)]
        blocks = (*view.blocks(), *write(raw))
        return Cut(view, (*lead, *raw), blocks, lead=tuple(write(lead)))


def _omitted(item: Covered) -> Omitted:
    """Describe a node that is omitted; slices of one message count as one message."""
    return Omitted(item.id, item.span, min(item.messages, item.span.stop - item.span.start))


def omitted_message(item: Shown) -> Omitted:
    """Describe a message that is omitted."""
    index = item.message.index
    return Omitted(name_of(index), Span(index, index + 1), 1)


def lead_of(messages: Sequence[StoredMessage]) -> tuple[Shown, ...]:
    """Return the system messages that lead a session, of which ``messages`` is the beginning."""
    led = takewhile(lambda stored: stored.role == "system", messages)
    return tuple(item for item in map(Shown, led) if not item.empty)


def turn_of(fitted: Cut) -> int | None:
    """Return the index of the newest message of a user's that stands verbatim, None for none."""
    said = (item.message for item in reversed(fitted.shown))
    return next((message.index for message in said if message.role == "user"), None)


def before_turn(fitted: Cut) -> int:
    """Return how many verbatim blocks stand before the newest turn.

    The turn begins with the newest message of a user's; no call is parted from its results.
    """
    raw = [block.message for block in fitted.blocks if block.message is not None]
    place = max((at for at, stored in enumerate(raw) if stored.role == "user"), default=0)
    while 0 < place < len(raw) and raw[place].role == "tool":
        place -= 1
    return place


def flat(pieces: Iterable[Sequence[Shown]]) -> list[Shown]:
    """Return the messages of all pieces."""
    return [item for piece in pieces for item in piece]


def _spoken(shown: Iterable[Shown]) -> int:
    """Return the number of messages that have content."""
    return sum(not item.empty for item in shown)
