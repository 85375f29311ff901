"""How much of a prompt stays the same from turn to turn, over a long real chat.

Feeds a chat of BEAM (1,556 messages, about 814,000 tokens) message by message and asks for a
context after each assistant turn, at three budgets. Prints, beside a sliding window and a policy
that folds everything older into one summary: tokens outside the shared prefix per new message
token (1.0 is the floor), the mean share of the budget that stands verbatim, the smallest coverage,
the largest total, and the tokens that a model reads per raw token (requests as sent).

    HIERMEM_DATA=path/to/data python benchmarks/prefix.py [messages]
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from hiermem import AsyncMemory, Message, UpdatePolicy
from hiermem.testing.llms import ScriptedLLM
from hiermem.tokens import default_counter

BUDGETS = (8_000, 16_000, 32_000)
SUMMARY = 800


@dataclass
class Tally:
    """Sums over the requests of one policy at one budget."""

    budget: int
    sent: int = 0
    new: int = 0
    verbatim: float = 0.0
    requests: int = 0
    least: float = 1.0
    most: int = 0

    def add(self, *, total: int, shared: int, new: int, verbatim: int, coverage: float) -> None:
        """Count one request."""
        self.sent += total - shared
        self.new += new
        self.verbatim += verbatim / self.budget
        self.requests += 1
        self.least = min(self.least, coverage)
        self.most = max(self.most, total)

    def row(self, name: str, model: str) -> str:
        """Write it as a table row."""
        return (
            f"| {name} | {self.budget:,} | {self.sent / self.new:.2f} | "
            f"{self.verbatim / self.requests:.2f} | {self.least:.2f} | {self.most:,} | {model} |"
        )


def load(limit: int | None) -> list[Message]:
    """Read the chat; its time anchors name days."""
    path = Path(os.environ["HIERMEM_DATA"]) / "beam" / "beam_1m_3.json"
    chat = json.loads(path.read_text(encoding="utf-8"))["messages"][:limit]
    day = datetime(2024, 3, 1, tzinfo=UTC)
    found = []
    for item in chat:
        if item.get("time_anchor"):
            day = datetime.strptime(item["time_anchor"], "%B-%d-%Y").replace(tzinfo=UTC)
        found.append(Message(item["role"], item["content"], created_at=day))
    return found


class Sliding:
    """Keeps the newest messages that fit."""

    def __init__(self, budget: int) -> None:
        self.tally = Tally(budget)
        self.sizes: list[int] = []
        self.start = 0
        self.seen = 0
        self.before = 0

    def ask(self, sizes: list[int]) -> None:
        """Make one request over all messages so far."""
        start, total = self.start, sum(sizes[self.start :])
        while total > self.tally.budget:
            total -= sizes[start]
            start += 1
        shared = self.before if start == self.start else 0
        self.tally.add(
            total=total,
            shared=shared,
            new=sum(sizes[self.seen :]),
            verbatim=total,
            coverage=(len(sizes) - start) / len(sizes),
        )
        self.start, self.seen, self.before = start, len(sizes), total


class FoldOlder:
    """Keeps a quarter of the budget verbatim and folds all that is older into one summary."""

    def __init__(self, budget: int) -> None:
        self.tally = Tally(budget)
        self.start = 0
        self.seen = 0
        self.before = 0
        self.read = 0

    def ask(self, sizes: list[int]) -> None:
        """Make one request over all messages so far."""
        budget, start = self.tally.budget, self.start
        summary = SUMMARY if start else 0
        total = summary + sum(sizes[start:])
        if total > budget:
            kept, start = 0, len(sizes)
            while start > self.start and kept + sizes[start - 1] <= budget // 4:
                start -= 1
                kept += sizes[start]
            self.read += summary + sum(sizes[self.start : start])
            total = SUMMARY + kept
        moved = start != self.start
        self.tally.add(
            total=total,
            shared=0 if moved else self.before,
            new=sum(sizes[self.seen :]),
            verbatim=total - (SUMMARY if start else 0),
            coverage=1.0,
        )
        self.start, self.seen, self.before = start, len(sizes), total


async def main() -> None:
    """Run all policies over the same chat and print the table."""
    limit = int(sys.argv[1]) if len(sys.argv) > 1 else None
    messages = load(limit)
    counter = default_counter()
    llm = ScriptedLLM()
    ours = {budget: Tally(budget) for budget in BUDGETS}
    sliding = {budget: Sliding(budget) for budget in BUDGETS}
    folding = {budget: FoldOlder(budget) for budget in BUDGETS}
    sizes: list[int] = []
    seen = 0
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        async with AsyncMemory.open(
            Path(place) / "chat.db",
            llm=llm,
            token_counter=counter,
            update_policy=UpdatePolicy(batch_delay=0, concurrency=8),
        ) as memory:
            session = memory.session("chat")
            for message in messages:
                await session.append(message)
                sizes.append(counter.count(str(message.content)) + 4)
                if message.role != "assistant":
                    continue
                await session.update()
                for budget in BUDGETS:
                    context = await session.context(budget)
                    verbatim = sum(b.tokens for b in context.blocks if b.kind == "message")
                    ours[budget].add(
                        total=context.total_tokens,
                        shared=context.shared_prefix_tokens,
                        new=sum(sizes[seen:]),
                        verbatim=verbatim,
                        coverage=context.coverage,
                    )
                    sliding[budget].ask(sizes)
                    folding[budget].ask(sizes)
                seen = len(sizes)
    raw = sum(sizes)
    print(f"{len(sizes):,} messages, {raw:,} tokens, {time.perf_counter() - began:.0f} s\n")
    print("| policy | budget | sent / new | verbatim | coverage | largest | model in / raw |")
    print("|---|---|---|---|---|---|---|")
    for budget in BUDGETS:
        print(sliding[budget].tally.row("sliding window", "0"))
        print(folding[budget].tally.row("fold all older", f"{folding[budget].read / raw:.2f}"))
        print(ours[budget].row("hiermem", f"{llm.input_tokens / raw:.2f}"))


asyncio.run(main())
