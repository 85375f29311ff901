"""Reads what the page shows, and writes nothing: no view of a context, no run, no call of a model.

``data`` decides how it is written. The messages are read last, so that all else refers to some.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from hiermem._version import __version__
from hiermem.config import BankPolicy
from hiermem.core.calls.run_report import RunItem, report
from hiermem.core.context.render import RENDERER
from hiermem.core.context.selection import ContextBudget
from hiermem.engine import metrics as measuring
from hiermem.engine.context.select import Request, context
from hiermem.engine.handle import Handle, every_session
from hiermem.engine.log import read
from hiermem.engine.spaces import space as space_engine
from hiermem.engine.spaces.records import SpaceContext
from hiermem.errors import BudgetTooSmallError
from hiermem.types import SessionRecord
from hiermem.types.transaction import NeedViews, RunRecord
from hiermem.view import data
from hiermem.view.data import Found, FoundSpace, Planned, Wording
from hiermem.view.page import json_block, packed, page

#: The budgets whose contexts are shown, besides those that were asked for before.
_BUDGETS: Final = (2_000, 4_000, 8_000, 16_000, 32_000)
#: The most of the latter, of a session's runs, of its calls, and of a space's consumed notes.
_ASKED, _RUNS, _CALLS, _NOTES = 4, 50, 100_000, 2_000
#: The most bytes of the sessions in one page; those that fit no more are listed only.
_MOST_BYTES: Final = 64_000_000


async def session_page(handle: Handle, session_id: str, *, text: bool, query: str | None) -> str:
    """Return the page of one session, with the spaces whose notes came from it."""
    found = await _session(handle, await handle.record_or_new(session_id), query)
    spaces = [
        space
        for space in await _spaces(handle)
        if any(session_id == source for note in space.notes for source, _ in note.sources)
    ]
    return await asyncio.to_thread(_joined, [found], spaces, Wording(text), query)


async def memory_page(handle: Handle, *, text: bool, query: str | None) -> str:
    """Return the page of all sessions and spaces of a tenant."""
    words = Wording(text)
    entries: list[dict[str, Any]] = []
    parts: dict[str, str] = {}
    room = _MOST_BYTES
    async for record in every_session(handle.store):
        found = await _session(handle, record, query)
        part = await asyncio.to_thread(_part, found, words)
        entries.append(data.entry(found, words))
        if len(part) <= room:
            room -= len(part)
            parts[f"s{len(entries) - 1}"] = part
    parts["bank"] = _packed([data.space(each, words) for each in await _spaces(handle)], words)
    return page(_head(entries, words, query), parts)


def _joined(found: list[Found], spaces: list[FoundSpace], words: Wording, query: str | None) -> str:
    parts = {f"s{at}": _part(each, words) for at, each in enumerate(found)}
    parts["bank"] = _packed([data.space(each, words) for each in spaces], words)
    entries = [data.entry(each, words) for each in found]
    return page(_head(entries, words, query), parts)


def _head(entries: list[dict[str, Any]], words: Wording, query: str | None) -> dict[str, Any]:
    return {
        "version": __version__,
        "packed": words.text,
        "query": None if query is None else words.say(query),
        "sessions": entries,
    }


def _part(found: Found, words: Wording) -> str:
    return _packed(data.session(found, words), words)


def _packed(value: object, words: Wording) -> str:
    # What is sent with a report of a bug stands plain, so that its sender can read it before.
    return packed(value) if words.text else json_block(value)


async def _session(handle: Handle, record: SessionRecord, query: str | None) -> Found:
    name = record.id
    contexts = await _contexts(handle, record, query)
    attempts = await handle.store.attempts(session_id=name, limit=_CALLS)
    run = RunRecord("", "update", name, record.created_at)  # of all runs together
    items = report(run, attempts, await handle.store.now()).items
    calls: dict[str, RunItem] = {item.id: item for item in items}
    return Found(
        record=record,
        status=await read.status(handle, name),
        summaries=await read.summaries(handle, name, None),
        pins=await read.pins(handle, name),
        contexts=contexts,
        metrics=await measuring.metrics(handle, name, None),
        runs=await read.runs(handle, _RUNS, subject=name),
        calls=calls,
        messages=await read.messages(handle, name, 0, None),
    )


async def _contexts(handle: Handle, record: SessionRecord, query: str | None) -> list[Planned]:
    """Plan contexts of a session up to the budget that holds all of it; store none of them."""
    (views,) = await handle.store.read([(record.id, NeedViews())])
    asked: set[int] = set()
    for view in () if query is not None else views:
        match view.name.split("/"):
            case ["default", budget, "None", renderer] if renderer == RENDERER:
                asked.add(int(budget))
    planned: list[Planned] = []
    for most in sorted({*_BUDGETS, *sorted(asked)[-_ASKED:]}):
        budget = ContextBudget(most, reserve_for_messages=None)
        try:
            found = await context(handle, record.id, Request(budget, keep=False, query=query))
        except BudgetTooSmallError as error:
            planned.append(Planned(most, most in asked, None, error.minimum))
            continue
        planned.append(Planned(most, most in asked, found))
        if all(block.message is not None for block in found.blocks) and not asked - {
            each.budget for each in planned
        }:
            break
    return planned


async def _spaces(handle: Handle) -> list[FoundSpace]:
    found: list[FoundSpace] = []
    for name in await space_engine.spaces(handle):
        space = SpaceContext(handle, name, None, BankPolicy())
        state = await space.state()
        notes = await space.consumed_notes()
        notes = [*notes[-_NOTES:], *await space.live_notes()]
        meta = state.meta
        found.append(FoundSpace(name, meta.revision, state.synthesis, state.texts, notes))
    return found
