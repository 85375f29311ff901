"""Decides, without a model, under which section of which file a note belongs.

A note goes where its category and the name of a section say. Its category is its own, or the word
before a colon at its beginning ("Bug: ..."), or one of its tags; a list says which sections hold
which category, in the words that people use for them. Every other note goes to one plain section,
which is made if there is none: a note in the wrong section would be a false statement. What a
section holds draws nothing. The same notes and files give the same places.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from hiermem.core.spaces.answer import LONGEST_HEADING
from hiermem.core.spaces.rules import Rules
from hiermem.core.spaces.sections import PATH, Section, plain, sections, unclosed
from hiermem.core.text.stemming import stem
from hiermem.data import word_lists
from hiermem.types.bank import BankText, Note

#: The longest heading that names a section, and the most sections with one heading.
_LONGEST: Final = LONGEST_HEADING // 2 - 8
_MOST_ALIKE: Final = 64
_NOTES: Final = "## Notes"
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
    """A section: its file, and its heading as an edit names it ("" if the file has none).

    ``new`` says that the section is not there yet. ``name`` are the stems of the telling words of
    its name, ``title`` those of its file's; a file that is one section is named by its own name.
    """

    file: str
    heading: str
    new: bool = False
    name: frozenset[str] = field(default=frozenset(), repr=False, compare=False)
    title: frozenset[str] = field(default=frozenset(), repr=False, compare=False)


def places_of(bank: BankText, rules: Rules) -> list[Placement]:
    """Return the sections of all files, in the order of the rules, then of the files' names."""
    shown = dict(bank.files) | dict(bank.missing)
    outlines = dict(bank.outlines)
    about = {file.name: file for file in rules.files}
    order = [name for name in rules.names if name in shown or name in outlines]
    order += [name for name in sorted({*shown, *outlines}) if name not in about]
    places: list[Placement] = []
    for name in order:
        if name in shown:
            headings = list(_labelled(sections(shown[name])))
        else:
            headings = [line.rpartition(" (")[0] for line in outlines[name].splitlines()]
            given = about[name].headings if name in about else ()
            headings = headings or [f"## {each}" for each in given]
        # The title of a file that has sections is none.
        headings = [each for each in headings if not each.startswith("# ")] or headings or [""]
        title = _key(name.removesuffix(".md")) - _SMALL
        for heading in headings:
            own = _key(heading.rpartition(PATH)[2]) - _SMALL
            alone = not heading or heading.startswith("# ") or len(headings) == 1
            places.append(Placement(name, heading, name=title if alone else own, title=title))
    return [*places, *_made(places, shown)]


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


def _made(places: Sequence[Placement], shown: Mapping[str, str]) -> list[Placement]:
    """Return the plain section that is to be made, if no section is one."""
    if _best(_PLAIN, places) is not None or len(places) < 2:
        return []
    for each in places:
        text = shown.get(each.file)
        if text is not None and each.heading and not unclosed(text):
            return [Placement(each.file, _NOTES, new=True, name=_key(_NOTES))]
    return []


def _labelled(found: Sequence[Section]) -> Iterator[str]:
    """Yield for each section a heading or path that names it alone, in one pass.

    Several sections with one heading are distinguished by their level, or by the heading above. If
    neither works, or very many share the heading, they are left out.
    """
    alike: dict[str, list[Section]] = {}
    for each in found:
        alike.setdefault(each.name, []).append(each)
    for each in found:
        group = alike[each.name]
        if len(each.heading) > _LONGEST or len(group) > _MOST_ALIKE:
            continue
        if sum(other.level == each.level for other in group) == 1:
            yield f"{'#' * each.level} {each.heading}"
        elif each.path and PATH not in each.heading + each.path[-1]:
            label = f"{each.path[-1]}{PATH}{each.heading}"
            below = sum(each.path[-1] in other.path for other in group)
            # A heading may look like a path itself; then it is found first.
            if below == 1 and len(each.path[-1]) <= _LONGEST and plain(label) not in alike:
                yield label
