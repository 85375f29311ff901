"""Reads what the page shows, and writes nothing: no view of a context, no run, no call of a model.

``data`` decides how it is written. The messages are read last, so that all else refers to some.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from hiermem import __version__
from hiermem.bank import space as space_engine
from hiermem.bank.records import BankState
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
from hiermem.types.bank import KnownLine, Note
from hiermem.types.transaction import NeedViews, RunRecord
from hiermem.upkeep import read_metrics
from hiermem.view import data
from hiermem.view.data import Planned, Wording
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
    # What is sent with a report of a bug stands plain, so that its sender can read it before.
    packing = packed if words.text else json_block
    entries: list[dict[str, Any]] = []
    parts, room = {"bank": packing(await _spaces(handle, session_id, words))}, _MOST_BYTES

    async def records() -> AsyncIterator[SessionRecord]:
        if session_id is not None:
            yield await handle.record_or_new(session_id)
            return
        async for record in every_session(handle.store):
            yield record

    async for record in records():
        entry, part = await _session(handle, record, words, packing, query)
        if len(part) <= room:
            room -= len(part)
            parts[f"s{len(entries)}"] = part
        entries.append(entry)
    head = {"version": __version__, "packed": words.text, "query": words.say(query or ""),
            "stop": sorted(STOP_WORDS | FIRST_PERSON), "sessions": entries}  # fmt: skip
    return page(head, parts)


async def _session(
    handle: Handle,
    record: SessionRecord,
    words: Wording,
    packing: Callable[[object], str],
    query: str | None,
) -> tuple[dict[str, Any], str]:
    """Return a session as the list of sessions shows it, and packed what the page shows of it."""
    name = record.id
    contexts = await _contexts(handle, record, _BUDGETS if words.alone else _OF_ALL, query)
    attempts = await handle.store.attempts(session_id=name, limit=_CALLS)
    run = RunRecord("", "update", name, record.created_at)  # of all runs together
    items = report(run, attempts, await handle.store.now()).items
    status = await read.status(handle, name)
    summaries = await read.summaries(handle, name, None)
    pins = await read.pins(handle, name)
    metrics = await read_metrics.metrics(handle, name, None)
    messages = await read.messages(handle, name, 0, None)

    def written() -> tuple[dict[str, Any], str]:
        calls = {item.id: item for item in items}
        entry = data.entry(status, record, messages, summaries, words)
        known = (status, messages, summaries, words)
        shown = data.session(*known, pins=pins, contexts=contexts, metrics=metrics, calls=calls)
        return entry, packing(shown)

    return await asyncio.to_thread(written)


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
            planned.append((most, most in asked, error.minimum))
            continue
        planned.append((most, most in asked, found))
        is_whole = all(block.message is not None for block in found.blocks)
        if is_whole and most >= max(asked, default=0):
            break
    return planned


async def _spaces(handle: Handle, session_id: str | None, words: Wording) -> list[dict[str, Any]]:
    """Return all spaces, or what came from one session alone of those that have something."""
    written: list[dict[str, Any]] = []
    for name in await space_engine.spaces(handle):
        space = SpaceContext(handle, name, None, BankPolicy())
        state = await space.state()
        notes = await space.consumed_notes()
        notes, lines = await space.with_sources(notes[-_NOTES:]), await about(space)
        if session_id is not None:
            notes = [each for each in notes if _is_of(session_id, each)]
            lines = [each for each in lines if _is_of(session_id, each)]
            state = BankState(name, state.rules)
        if session_id is None or notes or lines:
            written.append(data.space(name, state, notes, lines, words))
    return written


def _is_of(session_id: str, each: Note | KnownLine) -> bool:
    return {source for source, _ in each.sources} == {session_id}
