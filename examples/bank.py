"""A team's bank: agents write notes as they work, and one job merges them into files under git.

Agents only call ``note``. A scheduled job runs ``keep``: it imports what people changed in the
folder by hand, consolidates the notes, writes the bank to the folder, and prints what it did. Every
step may be killed and run again.

    python examples/bank.py                       # shows it on a bank of its own, offline
    python examples/bank.py team.db docs/bank     # what a team schedules: its store, its folder

Without a model, the offline model sorts the notes into sections. Pass your own as ``llm`` in
``open_bank``; see own_model.py for a model of one class.
"""

from __future__ import annotations

import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hiermem import BankPolicy, Memory, Space
from hiermem.types import ConsolidationResult

SPACE = "project-x"
RULES = """\
# Files

- progress.md: what works and what is being worked on
  - Done
  - In progress
- decisions.md: what was decided, and why
  - Storage
  - Interfaces
- risks.md: what may go wrong, and who watches it
  - Open
  - Settled

Write one fact a line. Keep numbers, dates and names as the notes have them.
"""


def open_bank(store: str) -> tuple[Memory, Space]:
    """Open the team's memory and its space. Consumed notes are kept for a year."""
    policy = BankPolicy(retention=timedelta(days=365))
    memory = Memory.open(store, bank_policy=policy)
    return memory, memory.space(SPACE, rules=RULES)


def keep(space: Space, folder: Path) -> ConsolidationResult:
    """Do what is scheduled: changes by hand in, notes in, the folder up to date."""
    if folder.exists():
        # An error here says that a file changed in the folder and in the bank: merge it by hand.
        space.load(folder)
    outcome = space.consolidate()
    print(f"{outcome.status}: {outcome.message}")
    for dropped in outcome.dropped:
        print(f"note {dropped.note} by {dropped.agent} was dropped: {dropped.reason}")
    for key in outcome.unplaced:
        print(f"! note {key} went into no file; the next run asks about it again")
    for blocked in outcome.blocked:
        print(f"! note {blocked.key} by {blocked.agent} was set aside: {blocked.reason}")
    for left in outcome.failed:
        print(f"! not taken: {left}")
    exported = space.export(folder)
    print(f"{len(exported.written)} files written, {len(exported.unchanged)} unchanged")
    return outcome


def demonstrate() -> None:
    """Play two days of a small team, with a change by hand in between."""
    monday = datetime(2026, 3, 2, 9, 30, tzinfo=UTC)
    notes = [
        ("planner", "decision", "Chose SQLite for storage: one file, no server to look after."),
        ("planner", "decision", "All interfaces speak JSON; field names are in English."),
        ("dev-1", "done", "Migrations run in one transaction since build 212."),
        ("dev-2", "in progress", "Retries in booking/seats.py: 3 attempts, 250 ms apart."),
        ("reviewer", "open risk", "The nightly backup takes 41 minutes."),
    ]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "bank"
        memory, space = open_bank(str(Path(place) / "team.db"))
        with memory:
            for minute, (agent, category, text) in enumerate(notes):
                at = monday + timedelta(minutes=minute)
                space.note(text, agent=agent, category=category, timestamp=at)
            print("== Monday, what it would do")
            print(space.consolidate(dry_run=True).diff)
            print("== Monday")
            keep(space, folder)

            print("\n== Tuesday, after somebody wrote a line by hand")
            progress = folder / "progress.md"
            progress.write_text(progress.read_text() + "- By hand: demo on Friday at 14:00.\n")
            tuesday = monday + timedelta(days=1)
            text = "The nightly backup takes 6 minutes."
            space.note(text, agent="dev-1", category="open risk", timestamp=tuesday)
            keep(space, folder)

            print(f"\n== {progress.name}\n{progress.read_text()}")
            print(f"== risks.md\n{space.read('risks.md')}")
            print(f"== synthesis\n{space.synthesis()}\n")
            print("== history")
            for revision in space.history():
                changed = ", ".join(f"{name} {what}" for name, what in revision.files.items())
                print(f"{revision.number} {revision.kind}, {len(revision.notes)} notes: {changed}")
            print(f"sound: {memory.check().ok}")


def main() -> None:
    """Keep the bank that is named, or show how it works."""
    if len(sys.argv) < 3:
        demonstrate()
        return
    memory, space = open_bank(sys.argv[1])
    with memory:
        outcome = keep(space, Path(sys.argv[2]))
    raise SystemExit(0 if outcome.status in ("ok", "nothing_to_do") else 1)


if __name__ == "__main__":
    main()
