"""What a context shows of a coding agent's log, and how many calls its summaries take.

Two logs: one made by this program (an agent that reads files, runs tests and searches, 60 calls of
1,000 to 3,000 tokens), and one of SWE-agent at work (``traces`` in the folder of the data). Each is
appended, summarised by the offline model, and read at several budgets. Counted are the agent's own
sentences, the failures that its tools reported, and the lines of noise: of each shape of line that
a log holds ten times and more, all but one. Beside them stands the rival that needs no memory:
every message, of each tool's result the first and the last 160 characters. Then an agent reads a
table of 3,000 rows; counted are the rows that stand in its context, and the odd ones of them.

    HIERMEM_DATA=path/to/data python benchmarks/agent_log.py
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from conversations import folder

from hiermem import Memory, Message, ToolCall
from hiermem.tokens import default_counter

BUDGETS = (2_000, 3_000, 4_000, 8_000, 16_000, 24_000, 48_000, 90_000)
#: Steps of the log that this program makes.
STEPS = 60
_CODE = (
    "import os", "def connect_db(url):", "    return sqlite3.connect(url)", "class Store:",
    "    def close(self):", "        self._db.close()",
)  # fmt: skip
_FIGURES = re.compile(r"\d+")


def made() -> Iterator[Message]:
    """Make the log of an agent that reads, tests and searches in turn, with its conclusions."""
    luck = random.Random(1)
    yield Message.user("Fix the flaky retry in src/store.py. Never touch migrations/.")
    for step in range(STEPS):
        kind = ("read", "pytest", "grep")[step % 3]
        if kind == "read":
            lines = [f"{n}: {luck.choice(_CODE)}" for n in range(250)]
        elif kind == "pytest":
            lines = ["============ test session starts ============", "collected 180 items"]
            lines += [f"tests/test_{n}.py::test_{n} PASSED" for n in range(180)]
            lines += [
                f"FAILED tests/test_store.py::test_retry_{step} - AssertionError: {step} != 3"
            ]
            lines += [f"===== 1 failed, 179 passed in 12.{step}s ====="]
        else:
            lines = [
                f"src/mod_{luck.randint(1, 99)}.py:{luck.randint(1, 400)}:    retry = "
                f"{luck.randint(1, 9)}"
                for _ in range(60)
            ]
        note = f"Hypothesis {step} is that the lock in module_{step}.py is held too long."
        call = ToolCall(f"c{step}", kind, json.dumps({"step": step}))
        yield Message.assistant(note, tool_calls=[call])
        yield Message.tool("\n".join(lines), tool_call_id=call.id)
    yield Message.assistant("Done.")


def trace() -> list[Message]:
    """Return the log of SWE-agent at work; what its shell answers is a tool's result."""
    path = folder() / "traces" / "sweagent_marshmallow.jsonl"
    found: list[Message] = []
    for line in path.read_text("utf-8").splitlines():
        role, content = (json.loads(line)[name] for name in ("role", "content"))
        if role == "user" and found and found[-1].role == "assistant":
            role = "tool"
        found.append(Message(role, content))
    return found


def sentences(messages: Sequence[Message]) -> set[str]:
    """Return the beginnings of what the agent says, one for each of its messages."""
    said = (str(each.content).strip() for each in messages if each.role == "assistant")
    return {text.splitlines()[0][:50] for text in said if len(text) > 20}


def lines_of(messages: Sequence[Message]) -> list[str]:
    """Return the lines of all tool results."""
    tools = [str(each.content) for each in messages if each.role == "tool"]
    return [line.strip() for text in tools for line in text.splitlines() if line.strip()]


def failures(messages: Sequence[Message]) -> set[str]:
    """Return the lines by which tools report a failure, in short."""
    found = (line for line in lines_of(messages) if re.match(r"FAILED|\w*Error\b", line))
    return {line[:50] for line in found}


def shown(text: str, wanted: set[str]) -> str:
    """Return how many of these beginnings a text holds."""
    return f"{sum(each in text for each in wanted)} of {len(wanted)}"


def noise(text: str, messages: Sequence[Message]) -> int:
    """Count the lines in a text of shapes that repeat, the first of each shape left out."""
    shapes = Counter(_FIGURES.sub("0", line) for line in lines_of(messages))
    often = {shape for shape, number in shapes.items() if number >= 10 and len(shape) > 8}
    found = Counter(
        shape for line in text.splitlines() if (shape := _FIGURES.sub("0", line.strip())) in often
    )
    return sum(number - 1 for number in found.values())


def cut(message: Message) -> str:
    """Return a message, a tool's result cut to its ends."""
    text = str(message.content)
    return text if message.role != "tool" or len(text) < 330 else f"{text[:160]} … {text[-160:]}"


def table() -> list[str]:
    """Make a table of orders: two are refunded, and one is of an amount that no other is near."""
    luck = random.Random(2)
    rows = [
        f"{n},2024-{1 + n % 12:02}-{1 + n % 28:02},{luck.choice(('Acme', 'Bolt', 'Cyan'))},"
        f"{luck.randint(10, 9999)}.{luck.randint(0, 99):02},paid"
        for n in range(3_000)
    ]
    for odd in (777, 2_222):
        rows[odd] = rows[odd].replace("paid", "refunded")
    rows[1_500] = "1500,2024-01-17,Acme,990000.00,paid"
    return rows


def of_table() -> None:
    """Print what contexts show of a table that an agent reads."""
    rows = table()
    odd = [row for number, row in enumerate(rows) if number in (777, 1_500, 2_222)]
    call = ToolCall("c1", "read", "{}")
    text = "\n".join(["id,day,customer,amount,status", *rows])
    with Memory.open(":memory:") as memory:
        session = memory.session("table")
        session.append([Message.user("What is odd?"), Message.assistant("", tool_calls=[call])])
        session.append([Message.tool(text, tool_call_id="c1"), Message.assistant("I look.")])
        session.update()
        print(f"\ntable: {len(rows)} rows, {sum(m.tokens for m in session.messages()):,} tokens")
        print(f"{'budget':>14} {'tokens':>7} {'rows':>6} {'odd':>4} {'counted verbatim':>17}")
        for budget in (1_000, *BUDGETS[:5]):
            found = session.context(budget, view=str(budget))
            lines = {line.split(" [x")[0].strip() for line in found.to_text().splitlines()}
            verbatim = sum(quarter.verbatim for quarter in found.shown.by_quarter)
            print(
                f"{budget:>14,} {found.total_tokens:>7,} {len(lines & {*rows}):>6,} "
                f"{len(lines & {*odd}):>4} {verbatim:>12} of 4"
            )


def main() -> None:
    """Print a table for each log."""
    of_table()
    count = default_counter().count
    for name, messages in (("made", list(made())), ("trace", trace())):
        own, failed = sentences(messages), failures(messages)
        with Memory.open(":memory:") as memory:
            session = memory.session(name)
            session.append(messages)
            calls = session.update(dry_run=True).calls
            session.update()
            size = sum(each.tokens for each in session.messages())
            print(f"\n{name}: {len(messages)} messages, {size:,} tokens, {calls} calls planned")
            print(f"{'budget':>14} {'tokens':>7} {'own words':>10} {'failures':>10} {'noise':>6}")
            for budget in BUDGETS:
                found = session.context(budget, view=str(budget))
                text = found.to_text()
                print(
                    f"{budget:>14,} {found.total_tokens:>7,} {shown(text, own):>10} "
                    f"{shown(text, failed):>10} {noise(text, messages):>6}"
                )
        text = "\n".join(map(cut, messages))
        print(
            f"{'both ends':>14} {count(text):>7,} {shown(text, own):>10} "
            f"{shown(text, failed):>10} {noise(text, messages):>6}"
        )


if __name__ == "__main__":
    main()
