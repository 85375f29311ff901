"""Decides a context by ``layered``: the fixed recipe of the published plan.

The recipe takes the recent messages that no window holds yet, up to their reserve. If the budget
has fewer than 2,000 tokens beside the reserve, it adds the newest L3 alone, if one is made.
Otherwise it adds the newest L2s up to 60 % of the remaining tokens, the newest L3 if it fits, and
the newest L1s that no chosen L2 covers.

The selection never exceeds the budget, and it lists what it does not represent. Unlike a ``cut``,
it leaves holes by design.
"""

from __future__ import annotations

from collections.abc import Sequence

from hiermem import needs
from hiermem.context import render as verbatim
from hiermem.context import zone as pins
from hiermem.context.cut import (
    Cut,
    Omitted,
    Situation,
    newest_sealed,
    omitted_message,
    with_images,
)
from hiermem.context.render import Excerpts, Frame, Shown, in_order
from hiermem.context.view import Piece, View
from hiermem.context.zone import Pin, ZoneMaker
from hiermem.errors import BudgetTooSmallError
from hiermem.needs import Reading
from hiermem.types import Span

#: If fewer tokens are left beside the reserve for messages, whatever they take of it, one L3 says
#: more than any finer summary.
_COARSE_BELOW = 2_000
#: The fraction of the tokens left by the recent messages that the newest L2s may take.
_L2_SHARE = 0.6
_STRIDE = 16


def shown(at: Situation, excerpts: Excerpts) -> Reading[Cut]:
    """Return the layered selection with excerpts of long tool results, and old images by name."""
    return (
        yield from with_images(
            lambda: verbatim.with_excerpts(select(at), excerpts), at, excerpts, anew=True
        )
    )


def select(at: Situation) -> Reading[Cut]:
    """Return the layered selection; ``at.reserve`` is the share of the recent messages."""
    zone = ZoneMaker(at.writer, view=at.view)
    recent, older, first = yield from _recent(at)
    apart = {item.message.index for item in at.lead}
    recent = [item for item in recent if item.message.index not in apart]
    older = [item for item in older if item.message.index not in apart]
    alone = Cut(View(first, ()), tuple(recent), tuple(at.writer.messages(recent)))
    room = at.budget - alone.tokens
    is_coarse = min(room, at.budget - _reserve(at)) + at.notice < _COARSE_BELOW
    # Otherwise the record of pins had what the summaries happen to leave.
    pinned = pins.record(at.writer, head_beside(at, alone))
    room -= pinned.tokens if pinned else 0
    chosen: list[Piece] = []
    if is_coarse:
        chosen += yield from _newest(at, zone, 3, room, most=1)
    if not chosen:
        twos = yield from _newest(at, zone, 2, int(_L2_SHARE * room))
        chosen += twos
        room -= sum(piece.tokens for piece in twos)
        threes = yield from _newest(at, zone, 3, room, most=1)
        chosen += threes
        room -= sum(piece.tokens for piece in threes)
        taken = [*(piece.windows for piece in twos), (first, at.state.next_ordinal(1))]
        chosen += yield from _newest(at, zone, 1, room, beside=taken)
    chosen.sort(key=lambda piece: (piece.windows, -(piece.level or 0)))
    blocks = (*(piece.block() for piece in chosen), *alone.blocks)
    holes = yield from _holes(first, [piece.windows for piece in chosen])
    omitted = (*holes, *map(omitted_message, older))
    view = View(at.state.next_ordinal(1), tuple(chosen), zone.serial)
    lead = tuple(at.writer.messages(at.lead))
    return Cut(view, (*at.lead, *alone.shown), blocks, omitted, lead=lead)


def head_beside(at: Situation, found: Cut) -> tuple[Pin, ...]:
    """Return the pins that a selection does not show, as fit its free room.

    Their lines stand in a record of their own at the end, as there is no stable zone.
    """
    missing = pins.hidden(at.pins, found.shown)
    room = min(at.pin_room, at.free(found.blocks))
    frame = Frame(pins.NAME, Span(0, max(1, at.state.next_index)))
    left = room - at.writer.record("pins", frame, "").tokens
    head = pins.head_of(missing, left, at.writer.count)
    pinned = pins.record(at.writer, head)
    return head if pinned is None or pinned.tokens <= room else ()


def _recent(at: Situation) -> Reading[tuple[list[Shown], list[Shown], int]]:
    """Take the newest messages that no made summary holds, in whole groups, up to the reserve.

    The window of the newest message always counts as not summarised, because the newest exchange
    group is always shown. Returns the messages taken, the older messages that were not taken, and
    the ordinal of the first window whose messages were read.

    Raises BudgetTooSmallError if the newest exchange group alone exceeds the budget.
    """
    reserve = _reserve(at)
    windows = yield from newest_sealed(at.state)
    first = at.state.next_ordinal(1) - len(windows)
    tokens = sum(window.tokens for window in at.state.open_windows())
    tokens += sum(window.input_tokens for window in windows)
    while first > 0 and tokens <= reserve:
        before = yield from needs.windows(first - 1, first)
        if before[0].revision:
            break
        windows = before + windows
        tokens += before[0].input_tokens
        first -= 1
    pieces = verbatim.pieces_of((yield from verbatim.read(at.state, windows)))
    taken = list(pieces.pop()) if pieces else []
    group = at.writer.cost(taken)
    unneeded = at.unneeded(at.writer.messages(taken))
    if group > at.budget + unneeded:
        raise BudgetTooSmallError(
            budget=at.budget + at.overhead,
            minimum=group + at.overhead - unneeded,
            why=f"the newest exchange group takes {group} tokens",
        )
    while pieces and at.writer.cost([*pieces[-1], *taken]) <= reserve:
        taken = in_order([*pieces.pop(), *taken])
    left = [item for piece in pieces for item in piece if not item.empty]
    return taken, in_order(left), first


def _reserve(at: Situation) -> int:
    """Return the tokens that are reserved for the recent messages."""
    return min(at.budget, at.reserve if at.reserve is not None else at.budget // 4)


def _newest(
    at: Situation,
    zone: ZoneMaker,
    level: int,
    room: int,
    *,
    most: int | None = None,
    beside: Sequence[tuple[int, int]] = (),
) -> Reading[list[Piece]]:
    """Take made summaries of ``level``, newest first, until a summary does not fit.

    Those that lie in one of the ranges ``beside`` are passed over.
    """
    chosen: list[Piece] = []
    begin = at.state.next_ordinal(level)
    while begin > 0:
        end, begin = begin, max(0, begin - _STRIDE)
        nodes = yield from needs.level(level, begin, end)
        # A part of a split group has a late ordinal although it covers early windows.
        nodes.sort(key=lambda node: node.windows)
        candidates = [
            node
            for node in reversed(nodes)
            if node.revision
            and not any(a <= node.windows[0] and node.windows[1] <= b for a, b in beside)
        ]
        read = yield from needs.revisions([(node.id, node.revision) for node in candidates])
        texts = {revision.node_id: revision for revision in read}
        for node in candidates:
            if node.id not in texts:
                continue
            piece = zone.whole(node, texts[node.id])
            if not piece.text:
                continue
            if piece.tokens > room:
                return chosen
            chosen.append(piece)
            room -= piece.tokens
            if most is not None and len(chosen) == most:
                return chosen
    return chosen


def _holes(total: int, taken: Sequence[tuple[int, int]]) -> Reading[list[Omitted]]:
    """List the stretches of windows that no chosen summary covers, one entry per stretch."""
    found: list[Omitted] = []
    at = 0
    for begin, end in [*sorted(taken), (total, total)]:
        if begin > at:
            first = yield from needs.windows(at, at + 1)
            last = yield from needs.windows(begin - 1, begin)
            span = Span(first[0].span.start, last[0].span.stop)
            found.append(Omitted(f"L1.{at}-{begin - 1}", span, span.stop - span.start))
        at = max(at, end)
    return found
