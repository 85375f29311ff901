"""How close an update comes to the critical path of its tree, with a slow model.

The tree of a BEAM chat is made with a model whose every answer takes 200 ms, or as long as is said,
8 calls at once. The model's answers were written in an earlier run over a copy, so that it takes
its time and nothing else. The critical path is computed from the tree by list scheduling: 8 calls
at once, lowest level first, then first in first out, a parent when all its children are made; nodes
that are kept word for word take no time. "Busy" is the processor time of the whole update, which is
spent between the calls. A remote model costs more: a claim, and each call journalled durably
first, and no answer may wait uncommitted while another call begins in its place.

    HIERMEM_DATA=path/to/data python benchmarks/update.py [messages [seconds a call]]
"""

from __future__ import annotations

import asyncio
import heapq
import json
import math
import os
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hiermem import AsyncMemory, LLMRequest, LLMResponse, Message, UpdatePolicy
from hiermem.testing.llms import ScriptedLLM
from hiermem.types import Summary

AIM = 1.1
LATENCY = float(sys.argv[2]) if len(sys.argv) > 2 else 0.2
HANDS = 8
POLICY = UpdatePolicy(concurrency=HANDS, batch_delay=0)
BEGIN = datetime(2024, 3, 1, tzinfo=UTC)
_RECORD_LINE = re.compile(r"^(?:\[\d{4}-\d\d-\d\d\]\n|(?:User|Assistant): )", re.MULTILINE)


class Recorder(ScriptedLLM):
    """Writes answers and keeps them by what was asked."""

    def __init__(self) -> None:
        super().__init__(keep=0)
        self.answers: dict[str, LLMResponse] = {}

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Answer, and remember it."""
        answer = await super().complete(request)
        # A model that summarises writes no lines in the form of the record.
        prose = _RECORD_LINE.sub("", answer.text)
        answer = self.answers[asked(request)] = replace(answer, text=prose)
        return answer


class Slow:
    """Answers with recorded texts after the latency, like a server with processors of its own."""

    context_window = None
    name = "scripted-1"

    def __init__(self, answers: dict[str, LLMResponse], *, remote: bool) -> None:
        self.remote = remote
        self._answers = answers

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Wait, and answer."""
        until = time.perf_counter() + LATENCY
        answer = self._answers[asked(request)]
        await asyncio.sleep(until - time.perf_counter())
        return answer


def asked(request: LLMRequest) -> str:
    """Return what distinguishes one request from another."""
    return f"{request.level} {request.target_tokens} " + "\n".join(s.text for s in request.inputs)


def load(limit: int) -> list[Message]:
    """Read the chat, a minute between messages."""
    path = Path(os.environ["HIERMEM_DATA"]) / "beam" / "beam_1m_3.json"
    chat = json.loads(path.read_text(encoding="utf-8"))["messages"][:limit]
    return [
        Message(item["role"], item["content"], created_at=BEGIN + timedelta(minutes=index))
        for index, item in enumerate(chat)
    ]


def critical_path(nodes: Sequence[Summary]) -> tuple[float, float]:
    """Return the seconds of the schedule, and the floor under any schedule."""
    took = {node.id: LATENCY * (node.revision.calls if node.revision else 0) for node in nodes}
    waiting = {node.id: len(node.children) for node in nodes}
    order = {node.id: (node.level, node.node.ordinal, node.id) for node in nodes}
    parent = {node.id: node.parent for node in nodes}
    ready = [order[id_] for id_, children in waiting.items() if not children]
    heapq.heapify(ready)
    running: list[tuple[float, str]] = []
    depth: dict[str, float] = {}
    now = 0.0
    while ready or running:
        while ready and len(running) < HANDS:
            id_ = heapq.heappop(ready)[2]
            heapq.heappush(running, (now + took[id_], id_))
        now, done = heapq.heappop(running)
        depth[done] = depth.get(done, 0.0) + took[done]
        above = parent[done]
        if above is not None and above in waiting:
            depth[above] = max(depth.get(above, 0.0), depth[done])
            waiting[above] -= 1
            if not waiting[above]:
                heapq.heappush(ready, order[above])
    calls = round(sum(took.values()) / LATENCY)
    return now, max(math.ceil(calls / HANDS) * LATENCY, *depth.values())


async def run(
    path: Path, messages: Sequence[Message], llm: Recorder | Slow
) -> tuple[float, float, list[Summary]]:
    """Update a fresh session; give its seconds by the wall and of the processor, and its nodes."""
    async with AsyncMemory.open(path, llm=llm, update_policy=POLICY) as memory:
        session = memory.session("chat")
        await session.append(messages)
        began, busy = time.perf_counter(), time.process_time()
        report = await session.update()
        took, busy = time.perf_counter() - began, time.process_time() - busy
        # The scripted writer quotes code now and then, which is no prose and is refused.
        if report.degraded + report.failed > report.made // 50:
            raise SystemExit(f"the run was not clean: {report}")
        return took, busy, await session.summaries()


async def main() -> None:
    """Record, run and print the table."""
    messages = load(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
    with tempfile.TemporaryDirectory() as place:
        recorder = Recorder()
        _, _, nodes = await run(Path(place) / "recorded.db", messages, recorder)
        path, floor = critical_path(nodes)
        calls = sum(node.revision.calls for node in nodes if node.revision)
        print(
            f"{len(messages):,} messages, {len(nodes)} nodes, {calls} calls of "
            f"{LATENCY * 1000:.0f} ms, {HANDS} at once; "
            f"no schedule takes less than {floor:.2f} s.\n"
        )
        print("| model | update, s | critical path, s | ratio | busy, s | aim |")
        print("|---|---|---|---|---|---|")
        for name, remote in (("local", False), ("remote: a claim and a journal", True)):
            slow = Slow(recorder.answers, remote=remote)
            took, busy, _ = await run(Path(place) / f"{name[:6]}.db", messages, slow)
            print(
                f"| {name} | {took:.2f} | {path:.2f} | {took / path:.2f} | {busy:.1f} | ≤ {AIM} |"
            )


if __name__ == "__main__":
    asyncio.run(main())
