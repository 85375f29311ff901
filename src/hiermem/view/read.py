"""Reads what the page shows, and writes nothing: no view of a context, no run, no call of a model.

``data`` decides how it is written. The messages are read last, so that all else refers to some.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

from hiermem import __version__
from hiermem.bank import space as space_engine
from hiermem.bank.store import SpaceContext
from hiermem.calls.report import report
from hiermem.changes.forget import about
from hiermem.config import BankPolicy
from hiermem.context import read
from hiermem.context.render import RENDERER
from hiermem.context.select import Request, context
from hiermem.context.selection import ContextBudget
from hiermem.errors import BudgetTooSmallError
from hiermem.handle import Handle, every_session
from hiermem.text.terms import FIRST_PERSON, STOP_WORDS
from hiermem.types import SessionRecord
from hiermem.types.transaction import NeedViews, RunRecord
from hiermem.upkeep import read_metrics
from hiermem.view import data
from hiermem.view.data import Found, FoundSpace, Planned, Wording
from hiermem.view.page import json_block, packed, page

#: The budgets whose contexts are shown, besides those that were asked for before; in a page of all
#: sessions fewer, because planning them takes most of its time.
_BUDGETS: Final = (2_000, 4_000, 8_000, 16_000, 32_000)
_OF_ALL: Final = (4_000, 16_000)
#: The most of the latter, of a session's calls, and of a space's consumed notes.
_ASKED, _CALLS, _NOTES = 4, 100_000, 2_000
#: The most bytes of the sessions in one page; those that fit no more are listed only.
_MOST_BYTES: Final = 64_000_000


async def html_page(
    handle: Handle, session_id: str | None, *, text: bool, query: str | None
) -> str:
    """Return the page of one session, or of all sessions and spaces of the tenant.

    The page of one session may be sent to somebody, so it holds nothing of another session's.
    """
    Request(ContextBudget(), query=query)  # refuses what is no question
    words = Wording(text, alone=session_id is not None)
    spaces = await _spaces(handle)
    if session_id is not None:
        spaces = [data.of_session(space, session_id) for space in spaces]
        spaces = [space for space in spaces if space.notes or space.lines]
    # What is sent with a report of a bug stands plain, so that its sender can read it before.
    packing = packed if words.text else json_block
    entries: list[dict[str, Any]] = []
    parts, room = {"bank": packing([data.space(each, words) for each in spaces])}, _MOST_BYTES

    async def records() -> AsyncIterator[SessionRecord]:
        if session_id is not None:
            yield await handle.record_or_new(session_id)
            return
        async for record in every_session(handle.store):
            yield record

    def written(found: Found) -> tuple[dict[str, Any], str]:
        return data.entry(found, words), packing(data.session(found, words))

    async for record in records():
        found = await _session(handle, record, _BUDGETS if words.alone else _OF_ALL, query)
        entry, part = await asyncio.to_thread(written, found)
        if len(part) <= room:
            room -= len(part)
            parts[f"s{len(entries)}"] = part
        entries.append(entry)
    head = {"version": __version__, "packed": words.text, "query": words.say(query or ""),
            "stop": sorted(STOP_WORDS | FIRST_PERSON), "sessions": entries}  # fmt: skip
    return page(head, parts)


async def _session(
    handle: Handle, record: SessionRecord, budgets: tuple[int, ...], query: str | None
) -> Found:
    name = record.id
    contexts = await _contexts(handle, record, budgets, query)
    attempts = await handle.store.attempts(session_id=name, limit=_CALLS)
    run = RunRecord("", "update", name, record.created_at)  # of all runs together
    items = report(run, attempts, await handle.store.now()).items
    return Found(
        status=await read.status(handle, name),
        record=record,
        summaries=await read.summaries(handle, name, None),
        pins=await read.pins(handle, name),
        contexts=contexts,
        metrics=await read_metrics.metrics(handle, name, None),
        calls={item.id: item for item in items},
        messages=await read.messages(handle, name, 0, None),
    )


async def _contexts(
    handle: Handle, record: SessionRecord, budgets: tuple[int, ...], query: str | None
) -> list[Planned]:
    """Plan contexts of a session up to the budget that holds all of it; store none of them."""
    (views,) = await handle.store.read([(record.id, NeedViews())])
    asked: set[int] = set()
    for view in () if query is not None else views:
        match view.name.split("/"):
            case ["default", budget, "None", renderer] if renderer == RENDERER:
                # Nothing may be left of the budget beside a system prompt.
                asked.add(max(1, int(budget)))
    planned: list[Planned] = []
    for most in sorted({*budgets, *sorted(asked)[-_ASKED:]}):
        budget = ContextBudget(most, reserve_for_messages=None)
        try:
            found = await context(handle, record.id, Request(budget, keep=False, query=query))
        except BudgetTooSmallError as error:
            planned.append(Planned(most, most in asked, None, error.minimum))
            continue
        planned.append(Planned(most, most in asked, found))
        if all(block.message is not None for block in found.blocks) and most >= max(
            asked, default=0
        ):
            break
    return planned


async def _spaces(handle: Handle) -> list[FoundSpace]:
    found: list[FoundSpace] = []
    for name in await space_engine.spaces(handle):
        space = SpaceContext(handle, name, None, BankPolicy())
        state = await space.state()
        notes = await space.consumed_notes()
        notes = await space.with_sources(notes[-_NOTES:])
        revision, lines = state.meta.revision, await about(space)
        found.append(FoundSpace(name, revision, state.synthesis, state.texts, notes, lines))
    return found
