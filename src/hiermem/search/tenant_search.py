"""Searches all sessions of a tenant, and returns what was said in any of them.

The index over all sessions says which blocks hold something of the question; the best of them are
read, made into one index, and ranked in it as in one session. So every hit has its place on one
scale. As in a session, a result belongs to one state of each session that it is from.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from hiermem import arguments
from hiermem.errors import SessionChangedError
from hiermem.handle import Handle, every_session
from hiermem.search import select as core_search
from hiermem.search.evidence import header
from hiermem.search.index import Evidence, Hit
from hiermem.search.indexes import STRIDE
from hiermem.search.postings import Postings
from hiermem.search.query import Query, read_query
from hiermem.search.ranking import SummaryIndex
from hiermem.search.search import Question, evidence_of, live_messages, message_hits, numbers_of
from hiermem.search.segments import Member, candidates, combined
from hiermem.search.select import ScoredQuery
from hiermem.search.tenant_index import consult, placed_blocks
from hiermem.tracing import span
from hiermem.types import SessionRecord, StoredMessage

Answer = TypeVar("Answer", list[Hit], Evidence)
#: How often a search is repeated because a session changed meanwhile.
_TRIES: Final = 5
#: The blocks that are ranked at first; of a large budget, one for each so many tokens.
_BLOCKS: Final = 64
_TOKENS: Final = 32
#: Evidence is chosen of so many times as many tokens as fit the budget.
_CHOICE: Final = 2
#: Hits that are read beside those that are returned.
_MORE: Final = 20
#: So few sessions are selected by their metadata beforehand; of more, what is found is.
_FEW_SESSIONS: Final = 256


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """The blocks that were ranked: one index of them, scored, and the records of their sessions.

    ``blocks`` are the session of each block, and where its stride begins there.
    """

    scored: ScoredQuery
    blocks: Sequence[tuple[str, int]]
    records: Mapping[str, SessionRecord]

    def session_of(self, number: int) -> str:
        """Return the session of a message of the index."""
        return self.blocks[number // STRIDE][0]


async def search(handle: Handle, question: Question, limit: int) -> list[Hit]:
    """Return the best ``limit`` messages of all sessions that pass the filters, best first."""
    arguments.whole(limit, "limit")

    # A phrase is looked for in some hits more than are returned.
    many = limit + _MORE if limit else 0

    def units(found: _Found) -> list[int]:
        return core_search.hits(found.scored, question.filters, many)

    async def answer(found: _Found) -> list[Hit]:
        chosen = units(found)
        read = await _read(handle, found, numbers_of(found.scored, chosen))
        hits = message_hits(handle, found.scored, chosen, read, found.session_of)
        return core_search.with_phrase_first(hits, question.text)[:limit]

    def enough(found: _Found) -> bool:
        return len(units(found)) >= limit

    return await _asked(handle, question, _BLOCKS, enough, answer)


async def recall(
    handle: Handle, question: Question, max_tokens: int, *, neighbours: int = 0
) -> Evidence:
    """Return verbatim evidence of all sessions that fits ``max_tokens``, by session, then time."""
    arguments.whole(max_tokens, "max_tokens")
    arguments.whole(neighbours, "neighbours")

    def enough(found: _Found) -> bool:
        return core_search.matter(found.scored, question.filters) >= _CHOICE * max_tokens

    async def answer(found: _Found) -> Evidence:
        longest = max(found.records, key=len, default="")
        units = core_search.evidence(
            found.scored,
            question.filters,
            max_tokens,
            count=handle.counter.count,
            neighbours=neighbours,
            header=header("2024-12-31", longest) + "\n",
        )
        read = await _read(handle, found, numbers_of(found.scored, units))
        return evidence_of(handle, found.scored, units, max_tokens, read, session=found.session_of)

    many = max(_BLOCKS, max_tokens // _TOKENS)
    return await _asked(handle, question, many, enough, answer)


# ---------------------------------------------------------------------------------------------
# Asking


async def _asked(
    handle: Handle,
    question: Question,
    many: int,
    enough: Callable[[_Found], bool],
    answer: Callable[[_Found], Awaitable[Answer]],
) -> Answer:
    """Rank the best ``many`` blocks, more until there is ``enough``, and read the answer."""
    query = read_query(question.text)
    with span("search") as note:
        for _ in range(_TRIES):
            try:
                found = await _ranked(handle, question, query, many, enough)
            except SessionChangedError:
                continue
            result = await answer(found)
            used = sorted({hit.session_id for hit in result})
            unchanged = await asyncio.gather(
                *(handle.is_unchanged(found.records[name]) for name in used)
            )
            if all(unchanged):
                note(hits=len(result))
                return result
        raise SessionChangedError("of this tenant")


async def _ranked(
    handle: Handle,
    question: Question,
    query: Query,
    many: int,
    enough: Callable[[_Found], bool],
) -> _Found:
    """Read so many blocks, best first, and more until there is enough in them.

    Raises SessionChangedError if a session was changed meanwhile.
    """
    parts, in_memory = await consult(handle, query)
    sessions = await _selected(handle, question.metadata)
    corpus, known = await asyncio.to_thread(
        candidates, parts, query, sessions=sessions, between=question.filters.between
    )
    labels = question.metadata.items()
    blocks: list[tuple[Member, Postings]] = []
    records: dict[str, SessionRecord] = {}
    read = 0
    while True:
        part = known[read : max(many, 2 * read)]
        read += len(part)
        for record, member, held in await placed_blocks(handle, in_memory, part):
            if labels <= record.metadata.items():
                blocks.append((member, held))
                records[record.id] = record

        def ranked() -> _Found:
            index, strides = combined(blocks, STRIDE)
            scored = core_search.ask(index, SummaryIndex(), query, corpus=corpus)
            return _Found(scored, strides, records)

        found = await asyncio.to_thread(ranked)
        if read >= len(known) or enough(found):
            return found


async def _selected(handle: Handle, metadata: Mapping[str, str]) -> frozenset[str] | None:
    """Return the sessions with these metadata; None if they are many, or all."""
    if not metadata or await handle.store.count_sessions(metadata=metadata) > _FEW_SESSIONS:
        return None
    return frozenset([one.id async for one in every_session(handle.store, metadata=metadata)])


async def _read(handle: Handle, found: _Found, numbers: Iterable[int]) -> dict[int, StoredMessage]:
    """Read messages by their numbers in the combined index."""
    wanted: dict[str, dict[int, int]] = {}
    for number in numbers:
        session_id, start = found.blocks[number // STRIDE]
        wanted.setdefault(session_id, {})[start + number % STRIDE] = number
    read = await asyncio.gather(
        *(live_messages(handle, session_id, places) for session_id, places in wanted.items())
    )
    return {
        places[index]: stored
        for places, messages in zip(wanted.values(), read, strict=True)
        for index, stored in messages.items()
        if index in places
    }
