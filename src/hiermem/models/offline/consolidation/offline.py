"""Consolidates notes without a model.

Each note becomes a point of the section that its category names (``placing``), dated and signed. A
note that a file says already is dropped, with this as the reason, and a statement that a later one
replaces is struck through (``superseding``). A missing file is created from the headings in the
rules. The synthesis is a selection of what holds now.

The same request gives the same answer, in any process, and never one that is larger than asked, as
long as a smaller one is possible. No words are invented.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC
from typing import Final

from hiermem.core.spaces.answer import MOST_EDITS, BankAnswer, DropAnswer, FileAnswer, SectionEdit
from hiermem.core.spaces.clean import folded, lines_of, tidy, visible
from hiermem.core.spaces.rules import read_rules
from hiermem.core.spaces.sections import apply_edit
from hiermem.core.summaries import salience
from hiermem.core.summaries.inputs import Count
from hiermem.core.text import units
from hiermem.core.text.measure import day
from hiermem.models.offline.consolidation.placing import place, places_of
from hiermem.models.offline.consolidation.superseding import Statements, bare, day_of, struck
from hiermem.types import Unit
from hiermem.types.bank import BankText, Note

#: The most tokens of the synthesis, and its share of an answer.
_SYNTHESIS: Final = 240
_SYNTHESIS_SHARE: Final = 8
#: The lengths, in tokens, to which notes are cut one after the other if not all fit.
_CUTS: Final = (None, 4_000, 2_000, 1_000, 500, 200, 100, 50, 25, 12, 6)
#: A note longer than this, in code points, is always cut to its weightiest sentences, in tokens.
_LONGEST: Final = 60_000
_LONGEST_CUT: Final = 4_000
_POINT: Final = ("- ", "* ", "+ ")
_STRUCK: Final = "~~"


def consolidate(bank: BankText, *, max_tokens: int, count: Count) -> BankAnswer:
    """Take the notes of ``bank`` into its files; the answer as written fits ``max_tokens``.

    If needed, no missing file is created, then notes are cut to their weightiest sentences, ever
    shorter. Below some tens of tokens no answer fits at all.
    """
    answer = BankAnswer(files=(), synthesis="")
    room = min(_SYNTHESIS, max_tokens // _SYNTHESIS_SHARE)
    for cut in _CUTS:
        for strike in (True, False):
            answer = _Merge(bank, count, cut=cut, strike=strike).answer(room)
            if count(write(answer)) <= max_tokens:
                return answer
    return answer


def write(answer: BankAnswer) -> str:
    """Write an answer as the JSON that a model returns."""
    return answer.model_dump_json()


@dataclass(slots=True)
class _Added:
    """The additions to one file: points by section, their notes, lines struck through."""

    points: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    notes: list[int] = field(default_factory=list[int])
    struck: dict[int, str] = field(default_factory=dict[int, str])
    new: set[str] = field(default_factory=set[str])


class _Merge:
    """One attempt to take the notes in."""

    def __init__(self, bank: BankText, count: Count, *, cut: int | None, strike: bool) -> None:
        self._bank, self._count, self._cut, self._strike = bank, count, cut, strike
        self._files = dict(bank.files)
        self._rules = read_rules(bank.rules)
        self._places = places_of(bank, self._rules)
        self._added: dict[str, _Added] = {}
        self._met = Statements()
        #: Where each statement stands: its file, with the number of its line in the file, or the
        #: heading and number of the point that is added.
        self._where: list[tuple[str, str | None, int]] = []
        #: The notes that statements are of, and the days that lines bear, by their numbers.
        self._notes: dict[int, Note] = {}
        self._days: dict[int, str] = {}
        self._said: dict[str, set[str]] = {}
        for name, text in bank.files:
            self._read(name, text)

    def _read(self, name: str, text: str) -> None:
        """Add the current content of a file."""
        self._said[name] = {folded(bare(line)) for line in lines_of(text)}
        for number, line in enumerate(text.split("\n")):
            if line.startswith(_POINT) and _STRUCK not in line:
                self._days[self._met.add(line)] = day_of(line)
                self._where.append((name, None, number))

    def answer(self, room: int) -> BankAnswer:
        """Take in each note and build the answer; its synthesis has ``room`` tokens."""
        for number, note in enumerate(self._bank.notes, start=1):
            self._take(number, note)
        files: list[FileAnswer] = []
        dropped: list[DropAnswer] = []
        for name, added in self._added.items():
            if (changed := self._file(name, added)) is not None:
                files.append(changed)
            else:
                reason = f"{name} says it already"
                dropped += (DropAnswer(note=number, reason=reason) for number in added.notes)
        files += [
            FileAnswer(name=name, action="create", content=text)
            for name, text in self._bank.missing
            if name not in self._added
        ]
        files.sort(key=lambda file: file.name)
        return BankAnswer(
            files=tuple(files), dropped=tuple(dropped), synthesis=self._synthesis(room)
        )

    def _synthesis(self, room: int) -> str:
        """Select the most valuable of all statements that hold now."""
        pieces: list[Unit] = []
        for number, said in self._met.standing():
            note = self._notes.get(number)
            pieces += units.split(
                said,
                index=number,
                role="assistant" if note is None else "user",
                speaker="" if note is None else " ".join(note.agent.split()),
                date=self._days[number] if note is None else day(note.timestamp.astimezone(UTC)),
            )
        return salience.select(pieces, max(1, room), self._count).text

    def _take(self, number: int, note: Note) -> None:
        where = place(note, self._places)
        added = self._added.setdefault(where.file, _Added())
        added.notes.append(number)
        text = self._shortened(note)
        said = self._said.setdefault(where.file, set())
        if folded(text) in said:
            return
        said.add(folded(text))
        points = added.points.setdefault(where.heading, [])
        if where.new:
            added.new.add(where.heading)
        if self._strike and (since := self._supersede(text, note)):
            points.append(struck(_point(text, note), day=since))
            return
        self._notes[self._met.add(text)] = note
        self._where.append((where.file, where.heading, len(points)))
        points.append(_point(text, note))

    def _supersede(self, text: str, note: Note) -> str:
        """Strike through what the note replaces.

        If the other statement is of a later day, the note is the one that no longer holds: return
        that day, otherwise "".
        """
        found = self._met.rival(text)
        if found is None:
            return ""
        file, heading, at = self._where[found]
        today, said = day(note.timestamp.astimezone(UTC)), self._days.get(found, "")
        if said > today:
            return said
        self._met.drop(found)
        if heading is not None:
            points = self._added[file].points[heading]
            points[at] = struck(points[at], day=today)
        else:
            line = self._files[file].split("\n")[at]
            self._added.setdefault(file, _Added()).struck[at] = struck(line, day=today)
        return ""

    def _shortened(self, note: Note) -> str:
        text = visible("\n".join(note.text.splitlines())).strip()
        cut = self._cut
        if cut is None and len(text) <= _LONGEST:
            return text
        cut = cut or _LONGEST_CUT
        if len(text) <= _LONGEST and self._count(text) <= cut:
            return text
        pieces = units.split(text, index=None, role="user", speaker="", date="")
        kept = salience.select(pieces, cut, self._count).text
        # One sentence may be longer than the room that is left.
        return kept or text[: 2 * cut].rstrip() + "…"

    def _file(self, name: str, added: _Added) -> FileAnswer | None:
        """Build the change of one file; None if it contains everything already."""
        held = self._files.get(name)
        outlined = any(name == other for other, _ in self._bank.outlines)
        edits = tuple(
            SectionEdit(
                operation="insert" if heading in added.new else "append",
                heading=heading,
                text="\n".join(points),
            )
            for heading, points in added.points.items()
            if heading
        )
        notes = tuple(added.notes)
        loose = added.points.get("")
        if held is not None and not (added.points or added.struck):
            return None
        few = len(edits) <= MOST_EDITS and not (added.struck or loose)
        if outlined or (held is not None and few):
            return FileAnswer(name=name, action="edit", edits=edits[:MOST_EDITS], notes=notes)
        start = held if held is not None else dict(self._bank.missing)[name]
        lines = [added.struck.get(at, line) for at, line in enumerate(start.split("\n"))]
        text = "\n".join(lines)
        for edit in edits:
            text = apply_edit(text, edit)
        if loose:
            text = tidy("\n".join([text.rstrip("\n"), *loose]))
        action = "create" if held is None else "update"
        return FileAnswer(name=name, action=action, content=text, notes=notes)


def _point(text: str, note: Note) -> str:
    """Write a note as a point of a list; further lines are indented so that none is a heading."""
    when = day(note.timestamp.astimezone(UTC))
    who = " ".join(note.agent.split())[:120]
    first, *rest = text.split("\n")
    lines = [f"- {when}: {first}", *(f"    {line}" if line.strip() else "" for line in rest)]
    if who:
        lines[-1] += f" ({who})"
    return "\n".join(lines)
