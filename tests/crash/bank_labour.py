"""What agents note and how a careful model answers, for the tests that kill them."""

import asyncio
import json
import os
from datetime import UTC, datetime, timedelta
from random import Random

from hiermem import AsyncMemory, BankPolicy, UpdatePolicy
from hiermem.testing.llms import ScriptedLLM

AGENTS = ("dev-1", "dev/2", "..", "Ünïcode \u202e agent")
FILES = {
    "progress": "progress.md", "decision": "decisions.md", "risk": "risks.md", "": "context.md",
}  # fmt: skip
RULES = "# Files\n" + "\n".join(f"- {name}: the {name[:-3]} there is" for name in FILES.values())
START = datetime(2026, 3, 1, 9, tzinfo=UTC)
SPACE = "team"
#: Seconds that a killed process keeps the others waiting.
LEASE = 0.3
#: Notes that a process has to write.
COUNT = 96


def drawn(seed: int, count: int) -> list[list[dict]]:
    """Draw what each agent says; equal times are common, and no two facts are the same."""
    luck = Random(seed)
    said: list[list[dict]] = [[] for _ in AGENTS]
    for number in range(count):
        agent = luck.randrange(len(AGENTS))
        words = " ".join(luck.choices(("pump", "valve", "set", "to", "rpm", "Tuesday"), k=8))
        said[agent].append(
            {
                "text": f"fact-{number:05d}: {words} {luck.randrange(9_999)}",
                "agent": AGENTS[agent],
                "category": luck.choice(tuple(FILES)),
                "tags": luck.sample(("store", "api", "x/y"), luck.randrange(3)),
                "timestamp": START + timedelta(seconds=luck.randrange(40)),
            }
        )
    return said


def consolidated(request) -> str | None:
    """Answer as a careful model: each note as a line of the file of its category."""
    if request.task != "consolidate":
        return None
    files, held, begin = [], dict(request.bank.files), dict(request.bank.missing)
    for category, name in FILES.items():
        notes = [
            (number, note.text)
            for number, note in enumerate(request.bank.notes, start=1)
            if note.category == category
        ]
        if notes:
            lines = "".join(f"\n- {said}" for _, said in notes)
            # An answer adds to a file that is too long for it; any other is written whole.
            text = (held.get(name) or begin.get(name, "")).rstrip()
            files.append(
                {
                    "filename": name,
                    "content": f"{text}{lines}\n",
                    "notes": [number for number, _ in notes],
                }
            )
    return json.dumps({"bank_files": files, "synthesis": f"{len(request.bank.notes)} more notes"})


async def texts_in(space) -> dict[str, int]:
    """Count how often each note's text is there, waiting or consumed."""
    found: dict[str, int] = {}
    for state in ("live", "consumed"):
        for note in await space.notes(state):
            found[note.text] = found.get(note.text, 0) + 1
    return found


async def keep_a_bank(path: str, seed: int, count: int = COUNT) -> None:
    """Write the notes that are not there yet and consolidate them, telling what was done."""
    policies = {"bank_policy": BankPolicy(max_notes=12), "update_policy": UpdatePolicy(lease=LEASE)}
    llm = ScriptedLLM(remote=True, latency=0.02, script=consolidated)
    async with AsyncMemory.open(path, llm=llm, **policies) as memory:
        space = memory.space(SPACE, rules=RULES)
        known = await texts_in(space)

        async def writing(notes):
            for note in notes:
                if note["text"] not in known:
                    await space.note(**note)
                    os.write(1, b"noted\n")

        async def consolidating():
            while True:
                done = await space.consolidate()
                os.write(1, f"{done.status} {done.notes_processed}\n".encode())
                if done.status == "busy":
                    await asyncio.sleep(0.05)
                elif not done.notes_remaining and writers.done():
                    return

        writers = asyncio.gather(*(writing(notes) for notes in drawn(seed, count)))
        await asyncio.gather(writers, consolidating())
        os.write(1, b"finished\n")
