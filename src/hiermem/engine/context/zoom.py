"""Select a context that can be zoomed, refine it for a question, or only search.

Only the selection is stored: the next selection of the session does not depend on the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from hiermem.core.context import recalled, zoom
from hiermem.core.context.cut import Cut
from hiermem.core.context.render import Writer
from hiermem.core.context.selection import AsyncContextSelection, ContextBudget
from hiermem.core.context.view import Piece, View
from hiermem.core.context.zone import ZoneMaker
from hiermem.core.search.hits import Evidence, Hit
from hiermem.engine.context import select
from hiermem.engine.handle import Handle
from hiermem.engine.search import search
from hiermem.tracing import span
from hiermem.types import Position, SessionRecord

#: The best messages that fit this many tokens determine which stretches a question is about.
_LOOKED_AT: Final = 1_000
#: A message with less than this fraction of the best score does not count for the question.
_ABOUT: Final = 0.6
#: The approximate number of tokens of the label and the line end of a passage.
_LABEL: Final = 8


async def context(
    handle: Handle, session_id: str, request: select.Request
) -> AsyncContextSelection:
    """Return the selection for a context request; it can be zoomed.

    Raises BudgetTooSmallError, NotFoundError.
    """
    limit = request.budget.max_tokens
    with span("context", subject=session_id, max_tokens=limit, view=request.view) as note:
        decided, found = await select.select(handle, session_id, request)
        shown = found.shown
        note(
            messages=found.messages,
            tokens=found.total_tokens,
            shared_prefix_tokens=found.shared_prefix_tokens,
            blocks=len(found.blocks),
            coverage=found.coverage,
            shown_messages=len(shown.messages),
            shown_by_quarter=shown.by_quarter,
        )
    return _zoomable(handle, request, decided, found)


def _zoomable(
    handle: Handle,
    request: select.Request,
    decided: select.Decided,
    selection: AsyncContextSelection,
) -> AsyncContextSelection:
    async def zoom(query: str) -> AsyncContextSelection:
        now = await refined(handle, request, decided, query)
        if now is None:
            return bound
        return _zoomable(handle, request, decided, select.chosen(handle, request, now))

    bound = replace(selection, _zoom=zoom)
    return bound


async def refined(
    handle: Handle, request: select.Request, decided: select.Decided, query: str
) -> select.Decided | None:
    """Return what was ``decided`` with the stretch that ``query`` is about in full.

    The zoom may use the room reserved for recall. Returns None if no summarised message answers.
    """
    record = await handle.record_or_new(decided.record.id)
    same = (record.epoch, record.tree) == (decided.record.epoch, decided.record.tree)
    before = decided.cut.view if same and request.strategy == "cut" else None
    situation = await select.situation_of(handle, record, request)
    situation = replace(situation, cache_cold=False, sticky=True, gone=decided.situation.gone)
    base = await handle.answer(record.id, select.cut_for(situation, request, record.id, before))
    spans = recalled.shown_spans([*base.shown, *base.pinned])
    near = await search.recall(handle, search.Question(record.id, query), _LOOKED_AT, shown=spans)
    hits = sorted(near.hits, key=lambda hit: -hit.score)
    wanted: list[zoom.Wanted] = []
    for hit in hits:
        if hit.score >= _ABOUT * hits[0].score:
            wanted += await _stretch(handle, record, base.view, hit)
    made = await handle.answer(record.id, zoom.zoom(situation, base, wanted))
    return select.Decided(record, situation, made) if made else None


async def _stretch(
    handle: Handle, record: SessionRecord, view: View, hit: Hit
) -> list[zoom.Wanted]:
    """Return the windows or the open message of the summary zone that a hit is in."""
    stored = hit.message
    if stored is None:
        return []
    at = Position(stored.index, hit.span.start_char)
    windows = await handle.store.tree(record.id).covering(stored.thread, stored.index)
    holding = [window for window in windows if window.span.begin <= at < window.span.end]
    if view.holds(stored.index) and all(window.ordinal >= view.boundary for window in holding):
        return [stored.index]
    return list(holding)


async def found(
    handle: Handle, question: search.Question, budget: ContextBudget
) -> AsyncContextSelection:
    """Fill a selection with search results: summaries whole, messages verbatim.

    The best hits are taken first. The best summary of each level is taken whatever else is; another
    one above or below a taken summary is skipped. Summaries come before the messages, both oldest
    first. Other messages are neither shown nor listed.
    """
    record = await handle.record_or_new(question.session_id)
    request = select.Request(budget)
    situation = replace(await select.situation_of(handle, record, request), standing_room=0)
    pieces, passages = await _taken(handle, record, question, situation.budget)
    room = situation.budget - sum(piece.tokens for piece in pieces)

    async def find(tokens: int, smaller: search.Smaller) -> Evidence:
        return await search.fill_budget(
            handle, record.id, passages, tokens, neighbours=0, smaller=smaller
        )

    block, evidence = await select.in_record(handle, find, room, messages=record.messages)
    gone = select.taken_back(await handle.store.events(record.id))
    view = View(0, tuple(pieces), gone=gone)
    decided = select.Decided(record, situation, Cut(view, (), tuple(view.blocks())))
    selection = select.chosen(handle, request, decided, block, evidence)
    return replace(selection, coverage=_covered(pieces, evidence) / max(1, record.messages))


async def _taken(
    handle: Handle, record: SessionRecord, question: search.Question, room: int
) -> tuple[list[Piece], list[Hit]]:
    """Return the best hits that fit ``room`` together: summaries by place, messages by rank."""
    writer = Writer(await handle.key(), handle.counter.count)
    zone = ZoneMaker(writer)
    frame = recalled.frame_tokens(writer, record.messages)
    pieces: list[Piece] = []
    passages: list[Hit] = []
    for hit in await search.semantic(handle, question):
        summary = hit.summary
        if summary is None or summary.revision is None:
            cost = hit.tokens + _LABEL + (0 if passages else frame)
            if cost <= room:
                passages.append(hit)
                room -= cost
            continue
        piece = await handle.answer(record.id, zone.whole(summary.node, summary.revision))
        first = piece.level not in {other.level for other in pieces}
        if piece.text and piece.tokens <= room and (first or not _kin(piece, pieces)):
            pieces.append(piece)
            room -= piece.tokens
    return sorted(pieces, key=lambda piece: piece.windows), passages


def _kin(piece: Piece, others: Sequence[Piece]) -> bool:
    """Return whether one of the others is above or below a piece in the tree."""
    return any(
        piece.windows[0] < other.windows[1] and other.windows[0] < piece.windows[1]
        for other in others
    )


def _covered(pieces: Sequence[Piece], evidence: Evidence | None) -> int:
    """Return the number of messages in the hulls of the summaries and the evidence."""
    ranges = [(piece.span.start, piece.span.stop) for piece in pieces]
    ranges += [(hit.span.start, hit.span.stop) for hit in evidence or ()]
    found = reached = 0
    for start, stop in sorted(ranges):
        found += max(0, stop - max(start, reached))
        reached = max(reached, stop)
    return found
