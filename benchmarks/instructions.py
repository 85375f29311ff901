"""Whether what a user asked for once stands in the contexts of later questions that it governs.

    HIERMEM_DATA=path/to/data python benchmarks/instructions.py [--million] [--samples N]

For BEAM's questions about an instruction or a preference, and for those of all kinds together: the
share of the evidence messages that a context for the question shows (verbatim, in a record of
standing wishes, or by lines that hold all of it), by budget, without such a record and with it. The
last lines are of contexts that were given no question, at the first budget: live ones, asked for
after every second message, as a chat does, and looked at after the last. ``--missing`` prints the
evidence about an instruction or a preference that they do not show.

Then, chat by chat, in how many user messages wishes were found, LoCoMo's talk of two
people included; ``--samples`` prints so many of them, chosen by a fixed seed, to be judged by eye.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
from conversations import Chat, Question, beam, folder, locomo
from survival import units_of

from hiermem import AsyncMemory, ContextPolicy, ContextSelection
from hiermem.stores.memory import MemoryStore
from hiermem.text import measure

BUDGETS = (4_000, 6_000, 8_000, 16_000)
GOVERNING = ("instruction_following", "preference_following")
#: What the shares at 4,000 tokens have to reach in live contexts. Evidence that asks for something
#: once ("Can you show me an example?") is no wish, and may be missing there.
WANTED = {"instruction_following": 0.95, "preference_following": 0.74}
Table = dict[str, list[list[float]]]


def standing(chat: Chat, context: ContextSelection) -> set[int]:
    """Return the messages that stand verbatim, whose wish is named, or all of whose units stand."""
    raw = {index for span in context.verbatim for index in range(span.start, span.stop)}
    text = context.to_text()
    whole = {
        index
        for index in context.shown.messages
        if all(unit.text in text for unit in units_of(chat.messages[index : index + 1], index))
    }
    return raw | set(context.pins) | whole


async def measured(chats: Iterable[Chat], policy: ContextPolicy) -> Table:
    """Return for each kind of question the shares of its evidence, one row a question."""
    rows: Table = defaultdict(list)
    for chat in chats:
        async with AsyncMemory.open(":memory:", context_policy=policy) as memory:
            session = memory.session(chat.name)
            await session.append(chat.messages)
            await session.update()
            for question in chat.questions:
                shown = []
                for budget in BUDGETS:
                    shown.append(await session.context(budget, query=question.text))
                    assert shown[-1].total_tokens <= budget
                add(rows, question, [standing(chat, context) for context in shown])
    return rows


async def live(chats: Iterable[Chat]) -> tuple[Table, list[str]]:
    """Return the same of contexts that were given no question, and what they lack."""
    rows: Table = defaultdict(list)
    missing: list[str] = []
    for chat in chats:
        session = AsyncMemory(store=MemoryStore()).session(chat.name)
        for begin in range(0, len(chat.messages), 2):
            await session.append(chat.messages[begin : begin + 2])
            await session.update()
            shown = await session.context(BUDGETS[0])
        there = [standing(chat, shown)]
        for question in chat.questions:
            add(rows, question, there)
            if question.kind in GOVERNING:
                missing += [
                    f"{question.kind}, {chat.name} {index}: {measure.body(chat.messages[index])}"
                    f"\n      asked: {question.text}\n      wanted: {question.answer}"
                    for index in sorted(question.evidence - there[0])
                ]
    return rows, missing


def add(rows: Table, question: Question, there: Sequence[set[int]]) -> None:
    """Note by budget the share of a question's evidence that is there."""
    row = [len(question.evidence & shown) / len(question.evidence) for shown in there]
    for kind in {"all kinds", question.kind} & {"all kinds", *GOVERNING}:
        rows[kind].append(row)


def show(name: str, rows: Table) -> None:
    for kind in (*GOVERNING, "all kinds"):
        values = np.mean(rows[kind], axis=0)
        print(f"  {kind + ', ' + name:<48}" + "".join(f"{value:8.3f}" for value in values))


async def statements(chats: Sequence[Chat]) -> list[str]:
    """Print how many messages of each chat have wishes; return the wishes."""
    found: list[str] = []
    for chat in chats:
        async with AsyncMemory.open(":memory:") as memory:
            session = memory.session(chat.name)
            read: dict[int, str] = {}
            # In parts, because pins() lists those of the newest messages only.
            for begin in range(0, len(chat.messages), 64):
                await session.append(chat.messages[begin : begin + 64])
                for one in await session.pins():
                    read[one.index] = f"{chat.name} {one.index}: {one.text}"
        users = sum(message.role == "user" for message in chat.messages)
        print(f"  {chat.name:<16}{users:>6} user messages{len(read):>6} with wishes")
        found += read.values()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--million", action="store_true", help="measure the long BEAM chat instead")
    parser.add_argument("--samples", type=int, default=0, help="print so many statements")
    parser.add_argument("--missing", action="store_true", help="print the evidence not shown")
    options = parser.parse_args()
    data = folder()
    chats = list(beam(data, size="1m" if options.million else "100k"))
    print(f"{'evidence shown, at tokens':<50}" + "".join(f"{budget:>8,}" for budget in BUDGETS))
    for name, share in (("none named", 0.0), ("named", ContextPolicy().pins)):
        show(name, asyncio.run(measured(chats, ContextPolicy(pins=share))))
    rows, missing = asyncio.run(live(chats))
    show("named, live, no question", rows)
    for line in missing if options.missing else ():
        print(f"    {line}")
    print("found:")
    found = asyncio.run(statements([*chats, *locomo(data)]))
    for line in random.Random(20).sample(found, min(options.samples, len(found))):
        print(f"    {line}")
    missed = 0
    for kind, wanted in WANTED.items():
        reached = float(np.mean(rows[kind], axis=0)[BUDGETS.index(4_000)])
        if reached < wanted:
            print(f"under the wanted figure: {kind} {reached:.3f}, wanted {wanted:.2f}")
            missed += 1
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
