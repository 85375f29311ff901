"""Reads the search results that fill a selection of ``ContextWindowManager.semantic_search``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from hiermem.context import render as recalled
from hiermem.context import select
from hiermem.context.cut import MOST_LEADING, Cut
from hiermem.context.render import Writer
from hiermem.context.selection import ContextBudget, ContextSelection
from hiermem.context.view import Piece, View
from hiermem.context.zone import ZoneMaker
from hiermem.errors import BudgetTooSmallError
from hiermem.handle import Handle
from hiermem.log.events import taken_back
from hiermem.search import search
from hiermem.search.results import Evidence, Hit
from hiermem.types import SessionRecord

#: The approximate number of tokens of the label and the line end of a passage.
_LABEL: Final = 8


async def found(
    handle: Handle, question: search.Question, budget: ContextBudget
) -> ContextSelection:
    """Fill a selection with search results: summaries whole, messages verbatim.

    The best hits are taken first. The best summary of each level is taken whatever else is; another
    one above or below a taken summary is skipped. Summaries come before the messages, both oldest
    first. Other messages are neither shown nor listed.
    """
    record = await handle.record_or_new(question.session_id)
    request = select.Request(budget)
    first = await handle.store.messages(record.id, 0, MOST_LEADING)
    situation = await select.situation_of(handle, record, request, first=first)
    if situation.budget + situation.notice < 0:
        raise BudgetTooSmallError(
            budget=budget.max_tokens,
            minimum=situation.overhead - situation.notice,
            why="the system prompt, the tools and the output reserve alone exceed it",
        )
    pieces, passages = await _taken(handle, record, question, situation.budget)
    room = situation.budget - sum(piece.tokens for piece in pieces)

    async def find(tokens: int) -> Evidence:
        return await search.pack(handle, record.id, passages, tokens)

    block, evidence = await select.in_record(handle, find, room, messages=record.messages)
    view = View(0, tuple(pieces), gone=taken_back(await handle.store.events(record.id)))
    decided = select.Decided(record, situation, Cut(view, (), tuple(view.blocks())))
    selection = await select.chosen(handle, request, decided, (block, evidence, ()))
    return replace(selection, coverage=_covered(pieces, evidence) / max(1, record.messages))


async def _taken(
    handle: Handle, record: SessionRecord, question: search.Question, room: int
) -> tuple[list[Piece], list[Hit]]:
    """Return the best hits that fit ``room`` together: summaries by place, messages by rank."""
    writer = Writer(await handle.key(), handle.counter)
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
        piece = zone.whole(summary.node, summary.revision)
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
