"""Decides, without a model, what a bank's files say after some notes.

A note becomes a point, dated and signed, in the section that its category names (``place``). Its
category is its own, or the word before a colon at its beginning ("Bug: ..."), or one of its tags; a
list says which sections hold which category. Every other note goes to one plain section, which is
made if there is none: a note in the wrong section would be a false statement. A missing file is
created from the headings in the rules.

A note that a file says already is dropped, with this as the reason. Nothing is struck out, and no
words are invented. The synthesis is a selection of all points. The same request gives the same
answer in any process, and never one that is larger than asked while a smaller one is possible.

In a space that learns, the sentences with a name, a figure or a date are points, newest first;
other sentences are left out.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC
from itertools import pairwise
from typing import Final, TypeAlias

from hiermem.bank.prompt import BankAnswer, DropAnswer, FileAnswer
from hiermem.bank.rules import OTHERS, Rules, read_rules
from hiermem.bank.said import OTHERS as BY_OTHERS
from hiermem.bank.said import is_said
from hiermem.bank.sections import folded, lines_of, sections, tidy, unclosed, visible
from hiermem.data import word_lists
from hiermem.summaries import salience
from hiermem.summaries.inputs import Count
from hiermem.text import entity_names, units
from hiermem.text.measure import day
from hiermem.text.policy import is_back_channel
from hiermem.text.terms import FIRST_PERSON, STOP_WORDS, stem, words
from hiermem.types import Role, Unit
from hiermem.types.bank import BankText, Note

_NOTES: Final = "Notes"
_LABEL: Final = re.compile(r"\W{0,4}([^\W\d_][\w -]{1,40}?)\s?:(?=\s)")
_WORD: Final = re.compile(r"[^\W_]+")
#: Who is spoken to: a name between the beginning of a sentence, or a comma, and its end or a comma.
_ADDRESSED: Final = re.compile(r"^(?:\w+,? ){0,2}[^\W\d_a-z]\w*[,!]|, ?[^\W\d_a-z]\w*[.!]*$")
#: A capital at the beginning of a sentence alone makes no name.
_GUESS: Final = 0.2
#: An exclamation of so many words tells nothing.
_CALL: Final = 5


def _key(text: str) -> frozenset[str]:
    """Return the stems of the words of a name."""
    return frozenset(map(stem, _WORD.findall(text.lower())))


_Keys: TypeAlias = frozenset[frozenset[str]]
_LISTS: Final = word_lists("note_places")
#: The words of names that say nothing of what a section holds.
_SMALL: Final = frozenset(map(stem, _LISTS["small"]))
#: The names of each category, and of the sections that hold it.
_CATEGORIES: Final[tuple[tuple[_Keys, _Keys], ...]] = tuple(
    (frozenset(map(_key, names)), frozenset(_key(name) - _SMALL for name in _LISTS[f"in {title}"]))
    for title, names in _LISTS.items()
    if f"in {title}" in _LISTS
)
_PLAIN: Final = frozenset(map(_key, _LISTS["in notes"]))


@dataclass(frozen=True, slots=True)
class Placement:
    """A section: its file, and its heading with its marks ("" if the file has none).

    ``end`` is the line before which its own text ends, None if the section is not in the file's
    text. ``name`` are the stems of the telling words of its name, ``title`` those of its file's; a
    file that is one section is named by its own name.
    """

    file: str
    heading: str
    end: int | None = None
    name: frozenset[str] = field(default=frozenset(), repr=False, compare=False)
    title: frozenset[str] = field(default=frozenset(), repr=False, compare=False)


def places_of(bank: BankText, rules: Rules) -> list[Placement]:
    """Return the sections of all files, in the order of the rules, then of the files' names."""
    texts = {**dict(bank.files), **dict(bank.missing)}
    order = [name for name in rules.names if name in texts]
    order += [name for name in sorted(texts) if name not in rules.files]
    places: list[Placement] = []
    for name in order:
        text = texts[name] or rules.files.get(name, "")
        spots: list[tuple[str, int | None]] = [
            (f"{'#' * level} {heading}", own if texts[name] else None)
            for heading, level, own in sections(text)
        ]
        # The title of a file that has sections is none.
        spots = [each for each in spots if not each[0].startswith("# ")] or spots or [("", None)]
        title = _key(name.removesuffix(".md")) - _SMALL
        for heading, end in spots:
            alone = not heading or heading.startswith("# ") or len(spots) == 1
            keys = title if alone else _key(heading) - _SMALL
            places.append(Placement(name, heading, end, name=keys, title=title))
    return [*places, *_made(places, texts)]


def place(note: Note, places: Sequence[Placement]) -> Placement:
    """Return the section for one note."""
    label = _LABEL.match(note.text)
    own = _key(note.category)
    said = [note.category, label[1] if label else "", *note.tags]
    # Of a kind that no list holds, the last word is the kind: "known limitation".
    said += [name.split()[-1] for name in said if name.split()[1:]]
    for each in filter(None, map(_key, said)):
        for found in places:
            if each - _SMALL == found.name:
                return found
        for names, held in _CATEGORIES:
            if each in names:
                # A file may be named after the category, and its section after the rest of it.
                inside = (one for one in places if one.title in held and one.name <= own)
                if (known := _best(held, places) or next(inside, None)) is not None:
                    return known
    return _best(_PLAIN, places) or places[0]


def _facts(note: Note) -> str:
    """Return the sentences of a note that hold a name, a figure or a date.

    One that begins with a small word, such as "It was issued on 3 June", says what it is about only
    behind the sentence before it.
    """
    pieces = units.split(note.text, index=None, role="user", speaker="", date="")
    texts = ["", *(unit.text.strip() for unit in pieces)]
    facts: list[str] = []
    for before, text in pairwise(texts):
        leans = not STOP_WORDS.isdisjoint(words(text)[:1]) and words(text)[0] not in FIRST_PERSON
        is_lead = leans and before not in (*facts[-1:], "") and not is_back_channel(before)
        facts += [before] * (is_lead and _tells(text)) + [text] * _tells(text)
    return " ".join(facts)


def _tells(sentence: str) -> bool:
    """Return whether a sentence tells something with a name, a figure or a date.

    Who is only spoken to is not named by it, and a call of few words tells nothing.

    >>> [_tells(text) for text in ("I live in Leeds.", "Thanks for that, Mel!", "Lucky Mel!")]
    [True, False, False]
    """
    plain = _ADDRESSED.sub(" ", sentence)
    is_call = sentence.endswith("!") and len(plain.split()) <= _CALL
    is_empty = sentence.endswith("?") or is_back_channel(sentence, wide=True)
    is_named = not is_call and any(name.sure > _GUESS for name in entity_names.find(plain))
    return not is_empty and (is_named or any(map(str.isdecimal, sentence)))


def _of_person(note: Note, places: Sequence[Placement]) -> Placement:
    """Return the first section for what a person says, that of other people for theirs."""
    others = [each for each in places if each.file == OTHERS]
    return others[0] if note.category == BY_OTHERS and others else places[0]


def _best(keys: _Keys, places: Sequence[Placement]) -> Placement | None:
    """Return the first section of such a name, or the first of which a part of the name is one."""
    whole = next((each for each in places if each.name in keys), None)
    parts = (each for each in places if any(key and key <= each.name for key in keys))
    return whole or next(parts, None)


def _made(places: Sequence[Placement], texts: Mapping[str, str]) -> list[Placement]:
    """Return the plain section that is to be made, if no section is one."""
    if _best(_PLAIN, places) is not None or len(places) < 2:
        return []
    for placement in places:
        if placement.heading and not unclosed(texts[placement.file]):
            return [Placement(placement.file, f"## {_NOTES}", name=_key(_NOTES))]
    return []


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
_MARK: Final = re.compile(r"^\s*(?:[-*+]|\d{1,9}[.)])\s+")
#: The day before a line and the agent after it, which are not part of its content.
_DAY: Final = re.compile(r"^\d{4}-\d\d-\d\d:\s+")
_AGENT: Final = re.compile(r"\s+\([^()]{1,120}\)$")


def consolidate(bank: BankText, *, max_tokens: int, count: Count) -> BankAnswer:
    """Take the notes of ``bank`` into its files; the answer as written fits ``max_tokens``.

    If needed, no missing file is created, then notes are cut to their weightiest sentences, ever
    shorter. Below some tens of tokens no answer fits at all.
    """
    answer = BankAnswer(bank_files=(), synthesis="")
    room = min(_SYNTHESIS, max_tokens // _SYNTHESIS_SHARE)
    for cut in _CUTS:
        answer = _Merge(bank, count, cut=cut).answer(room)
        if count(answer.model_dump_json()) <= max_tokens:
            return answer
    return answer


class _Merge:
    """One attempt to take the notes in."""

    def __init__(self, bank: BankText, count: Count, *, cut: int | None) -> None:
        self._bank, self._count, self._cut = bank, count, cut
        self._files = dict(bank.files)
        self._places = places_of(bank, read_rules(bank.rules))
        #: The additions by file: points by section, and the numbers of their notes.
        self._points_of: defaultdict[str, dict[Placement, list[str]]] = defaultdict(dict)
        self._notes_of: defaultdict[str, list[int]] = defaultdict(list)
        #: What each file says, and the sentences of all points.
        self._said = {
            name: {folded(_bare(line)) for line in lines_of(text)}
            for name, text in self._files.items()
        }
        self._points: list[Unit] = []
        for text in self._files.values():
            for line in text.split("\n"):
                if line.startswith(_POINT) and _STRUCK not in line:
                    self._note(_bare(line), role="assistant", day=_day_of(line))

    def _note(self, text: str, *, role: Role, day: str, who: str = "") -> None:
        """Remember a point for the synthesis."""
        number = len(self._points)
        self._points += units.split(text, index=number, role=role, speaker=who, date=day)

    def answer(self, room: int) -> BankAnswer:
        """Take in each note and build the answer; its synthesis has ``room`` tokens."""
        dropped: list[DropAnswer] = []
        for number, note in enumerate(self._bank.notes, start=1):
            if not is_said(note):
                self._take(number, note)
            elif facts := _facts(note):
                # What the space's person says needs no name.
                self._take(number, replace(note, text=facts, agent=note.category and note.agent))
            else:
                dropped.append(DropAnswer(notes=(number,), reason="no name, figure or date"))
        files: list[FileAnswer] = []
        for name, numbers in self._notes_of.items():
            notes = tuple(numbers)
            if self._points_of[name] or name not in self._files:
                files.append(FileAnswer(filename=name, content=self._text(name), notes=notes))
            else:
                dropped.append(DropAnswer(notes=notes, reason=f"{name} says it already"))
        files += [
            FileAnswer(filename=name, action="created", content=text)
            for name, text in self._bank.missing
            if name not in self._notes_of
        ]
        files.sort(key=lambda file: file.filename)
        return BankAnswer(
            bank_files=tuple(files),
            dropped=tuple(dropped),
            synthesis=salience.select(self._points, max(1, room), self._count).text,
        )

    def _take(self, number: int, note: Note) -> None:
        where = (_of_person if is_said(note) else place)(note, self._places)
        self._notes_of[where.file].append(number)
        text = self._shortened(note)
        lines = self._said.setdefault(where.file, set())
        if folded(text) in lines:
            return
        lines.add(folded(text))
        # The day and the agent as they stand at a point.
        when, who = day(note.timestamp.astimezone(UTC)), " ".join(note.agent.split())[:120]
        self._note(text, role="user", day=when, who=who)
        self._points_of[where.file].setdefault(where, []).append(_point(text, when, who))

    def _shortened(self, note: Note) -> str:
        text = visible("\n".join(note.text.splitlines())).strip()
        cut = self._cut
        if cut is None and len(text) <= _LONGEST:
            return text
        cut = cut or _LONGEST_CUT
        if len(text) <= _LONGEST and self._count(text) <= cut:
            return text
        pieces = units.split(text, index=None, role="user", speaker="", date="")
        shortened = salience.select(pieces, cut, self._count).text
        # One sentence may be longer than the room that is left.
        return shortened or text[: 2 * cut].rstrip() + "…"

    def _text(self, name: str) -> str:
        """Return the text of a file with its new points."""
        text = self._files.get(name) or dict(self._bank.missing).get(name, "")
        points = self._points_of[name]
        # From the end, so that the lines before stay where they are.
        for at in sorted(points, key=lambda at: -1e9 if at.end is None else -at.end):
            text = _with_points(text, at, points[at], first=bool(self._bank.learning))
        return text


def _with_points(text: str, at: Placement, points: Sequence[str], *, first: bool) -> str:
    """Return a file's text with points at the end of a section; the section is made if need be.

    If they come ``first``, the newest point is the first of the section.
    """
    lines = text.split("\n")
    end = len(lines) if at.end is None else at.end
    if first:
        points = points[::-1]
        while end and not lines[end - 1].startswith("#") and at.end is not None:
            end -= 1
    head, tail = "\n".join(lines[:end]).rstrip(), "\n".join(lines[end:]).strip("\n")
    new = [at.heading] if at.end is None and at.heading else []
    # A point that continues a list directly follows it; anything else is set off by a blank line.
    gap = "\n" if not new and _ends_in_list(head) else "\n\n"
    rest = "\n\n".join([*new, "\n".join(points), tail])
    return tidy(f"{head}{gap}{rest}")


def _ends_in_list(text: str) -> bool:
    """Return whether a text ends in a point of a list."""
    for line in reversed(text.split("\n")):
        if _MARK.match(line):
            return True
        if not line.startswith((" ", "\t")):
            return False
    return False


def _point(text: str, when: str, who: str) -> str:
    """Write a note as a point of a list; further lines are indented so that none is a heading."""
    first, *rest = text.split("\n")
    lines = [f"- {when}: {first}", *(f"    {line}" if line.strip() else "" for line in rest)]
    if who:
        lines[-1] += f" ({who})"
    return "\n".join(lines)


def _bare(line: str) -> str:
    """Return the content of a line, without its mark, its day and its agent.

    >>> _bare("- 2026-01-02: The port is 8080. (dev-1)")
    'The port is 8080.'
    """
    return _AGENT.sub("", _DAY.sub("", _MARK.sub("", line.strip()))).strip()


def _day_of(line: str) -> str:
    """Return the day of a line, "" if it has none."""
    match = _DAY.match(_MARK.sub("", line.strip()))
    return match.group().rstrip(": ") if match else ""
