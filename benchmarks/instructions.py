"""Whether what a user asked for once stands in the contexts of later questions that it governs.

    HIERMEM_DATA=path/to/data python benchmarks/instructions.py [--million] [--samples N]

For BEAM's questions about an instruction or a preference, and for those of all kinds together: the
share of the evidence messages that a context for the question shows (verbatim, or named as a
standing instruction), by budget, without standing instructions and with them. The last lines are of
contexts that were given no question.

Then, chat by chat, how many statements were found in how many user messages, LoCoMo's talk of two
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
from conversations import Chat, beam, folder, locomo

from hiermem import AsyncMemory, ContextPolicy, ContextSelection

BUDGETS = (4_000, 6_000, 8_000, 16_000)
GOVERNING = ("instruction_following", "preference_following")
#: What the share for instructions at 4,000 tokens has to reach.
WANTED = 0.70
Table = dict[str, list[list[float]]]


def standing(context: ContextSelection) -> set[int]:
    """Return the messages that stand verbatim, or whose instruction is named."""
    raw = {index for span in context.verbatim for index in range(span.start, span.stop)}
    return raw | {int(one.split("-")[0][1:]) for one in context.instructions}


async def measured(chats: Iterable[Chat], policy: ContextPolicy, *, asked: bool) -> Table:
    """Return for each kind of question the shares of its evidence, one row a question."""
    rows: Table = defaultdict(list)
    for chat in chats:
        async with AsyncMemory.open(":memory:", context_policy=policy) as memory:
            session = memory.session(chat.name)
            await session.append(chat.messages)
            await session.update()
            plain = [await session.context(budget) for budget in BUDGETS]
            for question in chat.questions:
                row: list[float] = []
                for budget, shown in zip(BUDGETS, plain, strict=True):
                    context = shown
                    if asked:
                        context = await session.context(budget, query=question.text)
                    assert context.total_tokens <= budget
                    found = question.evidence & standing(context)
                    row.append(len(found) / len(question.evidence))
                rows["all kinds"].append(row)
                if question.kind in GOVERNING:
                    rows[question.kind].append(row)
    return rows


def show(name: str, rows: Table) -> None:
    for kind in (*GOVERNING, "all kinds"):
        values = np.mean(rows[kind], axis=0)
        print(f"  {kind + ', ' + name:<48}" + "".join(f"{value:8.3f}" for value in values))


async def statements(chats: Sequence[Chat]) -> list[str]:
    """Print how many statements each chat has; return them."""
    found: list[str] = []
    for chat in chats:
        async with AsyncMemory.open(":memory:") as memory:
            session = memory.session(chat.name)
            read: dict[str, str] = {}
            # In parts, because instructions() lists those of the newest messages only.
            for begin in range(0, len(chat.messages), 64):
                await session.append(chat.messages[begin : begin + 64])
                for one in await session.instructions():
                    read[one.id] = f"{chat.name} {one.id} {one.kind}: {one.text}"
        users = sum(message.role == "user" for message in chat.messages)
        commands = sum(" instruction: " in line for line in read.values())
        print(f"  {chat.name:<16}{users:>6} user messages{commands:>6} instructions", end="")
        print(f"{len(read) - commands:>6} preferences")
        found += read.values()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--million", action="store_true", help="measure the long BEAM chat instead")
    parser.add_argument("--samples", type=int, default=0, help="print so many statements")
    options = parser.parse_args()
    data = folder()
    chats = list(beam(data, size="1m" if options.million else "100k"))
    print(f"{'evidence shown, at tokens':<50}" + "".join(f"{budget:>8,}" for budget in BUDGETS))
    reached = 0.0
    for name, share in (("none named", 0.0), ("named", ContextPolicy().instructions)):
        rows = asyncio.run(measured(chats, ContextPolicy(instructions=share), asked=True))
        show(name, rows)
        reached = float(np.mean(rows[GOVERNING[0]], axis=0)[BUDGETS.index(4_000)])
    show("named, no question", asyncio.run(measured(chats, ContextPolicy(), asked=False)))
    print("found:")
    found = asyncio.run(statements([*chats, *locomo(data)]))
    for line in random.Random(20).sample(found, min(options.samples, len(found))):
        print(f"    {line}")
    if reached < WANTED:
        print(f"under the wanted figure: {reached:.3f}, wanted {WANTED:.2f}")
    return int(reached < WANTED)


if __name__ == "__main__":
    sys.exit(main())
