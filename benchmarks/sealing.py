"""What chunking and sealing cost beside tokenising the same text.

Takes a BEAM chat (1,556 messages, 3.6 MB) through everything that an append does but for the store:
checking, measuring, hashing and looking for our own fences, then the fold into windows and groups
with its state written as JSON, message by message or 100 at a time. Beside it stands
counting the tokens of the same contents, and nothing else. The two take turns; processor time of
the thread, medians of the rounds' ratios.

    HIERMEM_DATA=path/to/data python benchmarks/sealing.py [rounds]
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

from hiermem import HierarchyConfig, Message
from hiermem.text import fence, measure
from hiermem.text.policy import clean_message
from hiermem.tokens import default_counter
from hiermem.tree import fold
from hiermem.tree.fold import SessionState
from hiermem.tree.turns import Arrival, Slice

AIM = 1.3
KEY = b"k" * 32


def load() -> list[Message]:
    """Read the chat, a minute between messages."""
    path = Path(os.environ["HIERMEM_DATA"]) / "beam" / "beam_1m_3.json"
    begin = datetime(2024, 3, 1, tzinfo=UTC)
    return [
        Message(item["role"], item["content"], created_at=begin + timedelta(minutes=index))
        for index, item in enumerate(json.loads(path.read_text(encoding="utf-8"))["messages"])
    ]


def tokenise(messages: Sequence[Message]) -> int:
    """Count the tokens of all contents."""
    count = default_counter().count
    return sum(count(str(message.content)) for message in messages)


def prepare(message: Message, index: int, config: HierarchyConfig) -> Arrival:
    """Check, measure and hash one message, as an append does before its transaction."""
    counter, unit = default_counter(), config.unit
    message = clean_message(message)
    tokens = measure.message_tokens(message, counter)
    fence.find(measure.body(message), key=KEY)
    measure.message_hash(message)
    slices: tuple[Slice, ...] = ()
    if tokens > config.hard_limit:
        points = measure.slice_points(message, unit=unit, target=config.target, counter=counter)
        sizes = measure.slice_sizes(message, points, unit=unit, counter=counter)
        slices = tuple(
            Slice(begin, end, size, weight)
            for begin, end, (size, weight) in zip((0, *points), (*points, None), sizes, strict=True)
        )
    assert message.created_at is not None
    return Arrival(
        index=index,
        thread=message.thread,
        role=message.role,
        size=tokens,
        tokens=tokens,
        at=message.created_at,
        slices=slices,
    )


def seal(messages: Sequence[Message], config: HierarchyConfig, *, batch: int) -> dict[int, int]:
    """Prepare and fold all messages, ``batch`` at a time; give the nodes sealed at each level."""
    state = SessionState()
    sealed: dict[int, int] = {}
    for first in range(0, len(messages), batch):
        given = messages[first : first + batch]
        arrivals = [prepare(message, index, config) for index, message in enumerate(given, first)]
        folded = fold.arrive(state, arrivals, config)
        state = folded.state
        state.to_json()
        for node in folded.nodes:
            sealed[node.level] = sealed.get(node.level, 0) + 1
    return sealed


def timed(work: Callable[[], object]) -> float:
    """Return the processor seconds that ``work`` takes."""
    began = time.thread_time()
    work()
    return time.thread_time() - began


def main() -> None:
    """Take turns and print the table."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    messages, config = load(), HierarchyConfig.by_tokens()
    raw = tokenise(messages)
    sealed = seal(messages, config, batch=100)
    if sealed != seal(messages, config, batch=1):
        raise SystemExit("how messages are batched changed what was sealed")
    sliced = sum(len(prepare(m, i, config).slices) > 0 for i, m in enumerate(messages))
    nodes = ", ".join(f"L{level} {count}" for level, count in sorted(sealed.items()))
    print(f"{len(messages):,} messages, {raw:,} tokens, {sliced} sliced; sealed: {nodes}\n")
    print("| folded | prepare and fold, s | tokenise, s | ratio | aim |")
    print("|---|---|---|---|---|")
    for name, batch in (("message by message", 1), ("100 at a time", 100)):
        pairs = [
            (
                timed(lambda batch=batch: seal(messages, config, batch=batch)),  # type: ignore[misc]
                timed(lambda: tokenise(messages)),
            )
            for _ in range(rounds)
        ]
        ours, plain = (median(side) for side in zip(*pairs, strict=True))
        ratio = median(one / two for one, two in pairs)
        print(f"| {name} | {ours:.3f} | {plain:.3f} | {ratio:.2f} | ≤ {AIM} |")


if __name__ == "__main__":
    main()
