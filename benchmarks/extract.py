"""What chunking costs an extraction: chunks, calls and tokens against a single pass.

Reads the BEAM development chats and the coding trace from the folder named by HIERMEM_DATA and
extracts each with the offline model, once in one pass and once in chunks as a model with a window
of WINDOW tokens would need it. The trace fits such a window, so it is measured with one of SMALL
tokens too; it is one turn, which has to be sliced then. Checks ids, spans and sizes of the chunks,
that no turn is split, and that a second run makes no call. All figures are the offline model's;
the tokens are those of the requests, prompt and schema included, as a live model would receive
them.

    HIERMEM_DATA=path/to/data python benchmarks/extract.py [window]
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from hiermem import AsyncMemory, ExtractionOptions, Message
from hiermem.types import ExtractionReport, TriVector

WINDOW = 32_000
SMALL = 12_000
ANSWER = 4_096


@dataclass(frozen=True)
class Chat:
    """One conversation under its name."""

    name: str
    messages: list[Message]


def beam(data: Path) -> Iterator[Chat]:
    for path in sorted((data / "beam").glob("beam_*.json")):
        at = datetime(2024, 1, 1, tzinfo=UTC)
        messages = []
        for entry in json.loads(path.read_text("utf-8"))["messages"]:
            if entry.get("time_anchor"):
                at = datetime.strptime(entry["time_anchor"], "%B-%d-%Y").replace(tzinfo=UTC)
            messages.append(Message(entry["role"], entry["content"], created_at=at))
        yield Chat(path.stem, messages)


def trace(data: Path) -> Iterator[Chat]:
    for path in sorted((data / "traces").glob("*.jsonl")):
        lines = path.read_text("utf-8").splitlines()
        yield Chat(path.stem, [Message.from_openai(json.loads(line)) for line in lines if line])


def check(chat: Chat, report: ExtractionReport) -> None:
    """Hold the chunks to what is promised of them."""
    assert report.outcome == "ok", (report.outcome, report.failures)
    ids = [chunk.id for chunk in report.chunks]
    assert ids == [f"{chat.name}:chunk:{number}" for number in range(len(ids))], "ids"
    at = (0, 0)
    for chunk in report.chunks:
        assert (chunk.span.start, chunk.span.start_char) == at or (
            chunk.span.start_char == 0 and chunk.span.start == at[0]
        ), "the spans leave a gap or overlap"
        if not chunk.oversized and report.chunked:
            first = chat.messages[chunk.span.start].role
            assert chunk.span.start == 0 or first == "user", "a turn is parted"
        if report.threshold is not None:
            assert chunk.request_tokens + ANSWER <= report.threshold, "over the limit"
        sliced = chunk.span.stop_char is not None
        at = (chunk.span.stop - sliced, chunk.span.stop_char or 0)
    assert at == (len(chat.messages), 0), "the end is missing"


async def measure(chat: Chat, window: int) -> dict[str, str]:
    """Extract a chat in one pass, in chunks, and in chunks again."""
    options = ExtractionOptions(output_tokens=ANSWER)
    chunked = ExtractionOptions(
        output_tokens=ANSWER, safe_processing_tokens=int(0.75 * window), oversized="slice"
    )
    async with AsyncMemory.open(":memory:") as memory:
        session = memory.session(chat.name)
        for start in range(0, len(chat.messages), 200):
            await session.append(chat.messages[start : start + 200])
        single = await session.extract(options)
        check(chat, single)
        begun = time.perf_counter()
        first = await session.extract(chunked)
        took = time.perf_counter() - begun
        check(chat, first)
        begun = time.perf_counter()
        second = await session.extract(chunked)
        again = time.perf_counter() - begun
        assert second.calls == 0, "a second run made a call"
        assert second.tri_vector == first.tri_vector
    one, many = single.tri_vector, first.tri_vector
    assert one is not None
    assert many is not None
    return {
        "chat": chat.name,
        "limit": f"{int(0.75 * window):,}",
        "messages": f"{len(chat.messages):,}",
        "one pass, tokens": f"{single.single_pass_tokens:,}",
        "chunks": f"{len(first.chunks)}",
        "sliced": f"{sum(chunk.oversized for chunk in first.chunks)}",
        "largest": f"{max(chunk.tokens for chunk in first.chunks):,}",
        "calls": f"{single.calls} : {first.map.calls} + {first.reduce.calls}",
        "chunked, tokens": f"{first.chunked_tokens:,}",
        "ratio": f"{first.chunked_tokens / single.single_pass_tokens:.2f}",
        "entities": f"{len(one.entities)} : {len(many.entities)}",
        "relations": f"{len(one.relations)} : {len(many.relations)}",
        "open": f"{unsettled(one)} : {unsettled(many)}",
        "merged": f"{many.stats.merged}",
        "seconds": f"{took:.2f}",
        "again": f"{second.calls} calls, {again:.2f} s",
    }


def unsettled(vector: TriVector) -> int:
    return sum(delta.open for delta in vector.deltas)


def main() -> None:
    data = Path(os.environ["HIERMEM_DATA"])
    window = int(sys.argv[1]) if len(sys.argv) > 1 else WINDOW
    print(
        f"Offline model; {ANSWER:,} tokens of the limit kept for an answer. "
        "'a : b' is one pass : chunked; calls are map + reduce."
    )
    rows = [(chat, window) for chat in (*beam(data), *trace(data))]
    rows += [(chat, SMALL) for chat in trace(data)]
    for number, (chat, size) in enumerate(rows):
        row = asyncio.run(measure(chat, size))
        if not number:
            print("| " + " | ".join(row) + " |")
            print("|" + "---|" * len(row))
        print("| " + " | ".join(row.values()) + " |", flush=True)


if __name__ == "__main__":
    main()
