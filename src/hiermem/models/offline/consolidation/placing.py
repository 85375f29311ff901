"""Decides, without a model, under which section of which file a note belongs.

A note goes where its category and the name of a section say. Its category is its own, or the word
before a colon at its beginning ("Bug: ..."), or one of its tags; a list says which sections hold
which category, in the words that people use for them. Every other note goes to one plain section,
which is made if there is none: a note in the wrong section would be a false statement. What a
section holds draws nothing. The same notes and files give the same places.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from hiermem.bank.rules import Rules
from hiermem.bank.sections import sections, unclosed
from hiermem.data import word_lists
from hiermem.text.stemming import stem
from hiermem.types.bank import BankText, Note

_NOTES: Final = "Notes"
_LABEL: Final = re.compile(r"\W{0,4}([^\W\d_][\w -]{1,40}?)\s?:(?=\s)")
_WORD: Final = re.compile(r"[^\W_]+")


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
    texts = {**dict(bank.append_only), **dict(bank.files), **dict(bank.missing)}
    about = {file.name: file for file in rules.files}
    order = [name for name in rules.names if name in texts]
    order += [name for name in sorted(texts) if name not in about]
    places: list[Placement] = []
    for name in order:
        found: list[tuple[str, int | None]] = [
            (f"{'#' * each.level} {each.heading}", each.own) for each in sections(texts[name])
        ]
        if not texts[name] and name in about:
            found = [(f"## {heading}", None) for heading in about[name].headings]
        # The title of a file that has sections is none.
        found = [each for each in found if not each[0].startswith("# ")] or found or [("", None)]
        title = _key(name.removesuffix(".md")) - _SMALL
        for heading, end in found:
            alone = not heading or heading.startswith("# ") or len(found) == 1
            own = title if alone else _key(heading) - _SMALL
            places.append(Placement(name, heading, end, name=own, title=title))
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


def _best(held: _Keys, places: Sequence[Placement]) -> Placement | None:
    """Return the first section of such a name, or the first of which a part of the name is one."""
    whole = next((each for each in places if each.name in held), None)
    return whole or next((each for each in places if _holds(each, held)), None)


def _holds(each: Placement, held: _Keys) -> bool:
    return any(wanted and wanted <= each.name for wanted in held)


def _made(places: Sequence[Placement], texts: Mapping[str, str]) -> list[Placement]:
    """Return the plain section that is to be made, if no section is one."""
    if _best(_PLAIN, places) is not None or len(places) < 2:
        return []
    for each in places:
        if each.heading and not unclosed(texts[each.file]):
            return [Placement(each.file, f"## {_NOTES}", name=_key(_NOTES))]
    return []
