"""Splits a session for an extraction: measures its messages and groups them into chunks.

Nothing is written. ``core.extraction.chunks`` decides the boundaries, from the messages, the
options and the model alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hiermem.core.calls.request_limits import request_tokens
from hiermem.core.extraction import chunks as chunking
from hiermem.core.extraction import prompt as extract_prompt
from hiermem.core.extraction.chunks import Chunk, ChunkPart, Measured
from hiermem.core.text import hashes
from hiermem.engine.extraction.chunk import MAP_TEMPLATE, PAGE, ExtractionRun
from hiermem.types import StoredMessage


@dataclass(frozen=True, slots=True)
class SplitSession:
    """A session in chunks, and what its requests take in addition to the record.

    ``tokens`` are those of the whole record. ``overhead`` is what a request takes besides the
    record, ``estimate`` the most that a single request for all might take, answer included.
    ``input`` identifies all that is read.
    """

    chunks: tuple[Chunk, ...]
    tokens: int
    overhead: int
    estimate: int
    chunked: bool
    input: str


async def split(run: ExtractionRun) -> SplitSession:
    """Measure the session's messages and group them into chunks."""
    slicing = run.policy.oversized == "slice" and run.room is not None
    measured: list[Measured] = []
    large: dict[int, StoredMessage] = {}

    def weigh(page: Sequence[StoredMessage]) -> None:
        for stored in page:
            found = chunking.measure(stored, count=run.counter.count)
            measured.append(found)
            if slicing and found.tokens > (run.room or 0):
                large[stored.index] = stored

    for start in range(0, run.record.messages, PAGE):
        page = await run.messages(start, min(start + PAGE, run.record.messages))
        await asyncio.to_thread(weigh, page)
    once = list(chunking.with_days_once(measured))
    return await asyncio.to_thread(_split_messages, run, once, large)


def _split_messages(
    run: ExtractionRun, measured: Sequence[Measured], large: Mapping[int, StoredMessage]
) -> SplitSession:
    record, count, template = run.record, run.counter.count, run.templates[MAP_TEMPLATE]

    def cut(index: int, room: int) -> Sequence[ChunkPart]:
        return chunking.pieces(large[index], room, counter=run.counter)

    chunks = chunking.plan(
        record.id,
        chunking.turns(measured),
        limit=run.room,
        strategy=run.strategy,
        oversized=run.policy.oversized,
        cut=cut,
    )
    facts = run.facts(
        first_at=record.created_at, last_at=record.created_at, messages=record.messages
    )
    empty = extract_prompt.render(template, (), facts=facts, answer=run.answer)
    tokens = sum(each.tokens for each in measured)
    return SplitSession(
        chunks=chunks,
        tokens=tokens,
        overhead=request_tokens(empty, count) + extract_prompt.schema_tokens(count),
        estimate=extract_prompt.around(template, count=count) + tokens + run.answer,
        chunked=run.room is not None and tokens > run.room,
        input=hashes.input_hash(
            level=0,
            strategy="",
            outputs=[f"{each.index}={each.hash}" for each in measured if each.hash],
        ),
    )
