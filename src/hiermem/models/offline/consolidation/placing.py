"""Decides, without a model, under which section of which file a note belongs.

A section is described by its heading, by what the rules say of its file, and by its current text. A
note goes to the section with which it shares the most weight in words: words of the heading count
most, and rare words more than common ones. A note that shares nothing goes to the first section of
all. The same notes and the same files give the same places.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from hiermem.core.spaces.answer import LONGEST_HEADING
from hiermem.core.spaces.rules import Rules
from hiermem.core.spaces.sections import PATH, Section, plain, sections
from hiermem.core.text.lexicon import Lexicon
from hiermem.types.bank import BankText, Note

_HEADING: Final = 4.0
_ABOUT: Final = 2.0
_SAYS: Final = 1.0
#: The longest heading that names a section, and the most sections with one heading.
_LONGEST: Final = LONGEST_HEADING // 2 - 8
_MOST_ALIKE: Final = 64
#: The weight of the words of a note's category and tags.
_LABEL: Final = 3.0


@dataclass(frozen=True, slots=True)
class Placement:
    """A section: its file, and its heading as an edit names it ("" if the file has none).

    ``terms`` are the words that describe it, with their weights.
    """

    file: str
    heading: str
    terms: dict[str, float] = field(repr=False, compare=False)


def places_of(bank: BankText, rules: Rules, lexicon: Lexicon) -> list[Placement]:
    """Return the sections of all files, in the order of the rules, then of the files' names."""
    shown = dict(bank.files) | dict(bank.missing)
    outlines = dict(bank.outlines)
    about = {file.name: file for file in rules.files}
    order = [name for name in rules.names if name in shown or name in outlines]
    order += [name for name in sorted({*shown, *outlines}) if name not in about]
    places: list[Placement] = []
    for name in order:
        description = f"{about[name].title} {about[name].about}" if name in about else name
        known = dict.fromkeys(lexicon.terms(description), _ABOUT)
        if name in shown:
            places += _in_text(name, shown[name], known, lexicon)
        else:
            headings = [line.rpartition(" (")[0] for line in outlines[name].splitlines()]
            headings = headings or [f"## {each}" for each in _given(rules, name)]
            found = [Placement(name, each, _known(each, known, lexicon)) for each in headings]
            places += _deepest(found)
    return places


def place(note: Note, places: Sequence[Placement], lexicon: Lexicon) -> Placement:
    """Return the section for one note."""
    said: dict[str, float] = dict.fromkeys(lexicon.terms(note.text), _SAYS)
    for term in lexicon.terms(" ".join((note.category, *note.tags))):
        said[term] = said.get(term, 0.0) + _LABEL
    spread = Counter(term for each in places for term in said.keys() & each.terms.keys())
    if not spread:
        return places[0]

    def worth(each: Placement) -> float:
        return math.fsum(
            each.terms[term] * said[term] / spread[term]
            for term in sorted(said.keys() & each.terms.keys())
        )

    return max(places, key=worth)


def _given(rules: Rules, name: str) -> tuple[str, ...]:
    return next((file.headings for file in rules.files if file.name == name), ())


def _in_text(name: str, text: str, known: dict[str, float], lexicon: Lexicon) -> list[Placement]:
    """Return the sections of a shown file, except those that no edit could name."""
    lines = text.split("\n")
    places: list[Placement] = []
    for each, label in _labelled(sections(text)):
        terms = _known(each.heading, known, lexicon)
        for term in lexicon.terms("\n".join(lines[each.body : each.own])):
            terms[term] = max(terms.get(term, 0.0), _SAYS)
        places.append(Placement(name, label, terms))
    return _deepest(places) or [Placement(name, "", known)]


def _labelled(found: Sequence[Section]) -> Iterator[tuple[Section, str]]:
    """Yield each section with a heading or path that names it alone, in one pass.

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
            yield each, f"{'#' * each.level} {each.heading}"
        elif each.path and PATH not in each.heading + each.path[-1]:
            label = f"{each.path[-1]}{PATH}{each.heading}"
            below = sum(each.path[-1] in other.path for other in group)
            # A heading may look like a path itself; then it is found first.
            if below == 1 and len(each.path[-1]) <= _LONGEST and plain(label) not in alike:
                yield each, label


def _known(heading: str, known: dict[str, float], lexicon: Lexicon) -> dict[str, float]:
    return known | dict.fromkeys(lexicon.terms(plain(heading)), _HEADING)


def _deepest(places: list[Placement]) -> list[Placement]:
    """Leave out the title of a file that has sections."""
    below = [each for each in places if not each.heading.startswith("# ")]
    return below or places
