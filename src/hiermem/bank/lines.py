"""Decides which messages each line of a learning space's files comes from, and what a page holds.

An answer names notes for each file. Each new line is narrowed to the notes, and the earlier lines,
that hold its figures, dates and names; a line that holds others is left out. A line of which
nothing is known was written by hand: answers neither change nor remove it. Erasing a message takes
every line that came from it (``dead``), since nobody can say which words of it came from where.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final

from hiermem.bank.records import BankState
from hiermem.bank.rules import OTHERS, PAST
from hiermem.bank.said import OTHERS as BY_OTHERS
from hiermem.bank.said import is_said
from hiermem.bank.sections import folded
from hiermem.text import facts
from hiermem.text.measure import day
from hiermem.text.terms import terms
from hiermem.types.bank import KnownLine, LineOrigin, Note, Origins, Source

#: The notes that are looked at for a fact which those with a line's words lack, and its facts.
_MOST: Final = 12
_FACTS: Final = 64
#: A word that no more notes and lines hold is telling.
_RARE: Final = 3
#: The share of a page for what holds now; what held before gets the rest.
_NOW: Final = 0.8
_DATE: Final = re.compile(r"(?<!\d)\d{4}-\d\d-\d\d(?!\d)")
_YEAR: Final = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)")
_CHANGE: Final = re.compile(r"\((?:since (?P<since>[^;()]*))?(?:; |;)?(?:was (?P<was>[^()]*))?\)")


def bare(line: str) -> str:
    """Return what a line says, without its mark."""
    return line.strip(" \t-*")


def says(line: str) -> bool:
    """Return whether a line of a file says anything; a heading does not."""
    return bool(bare(line)) and not line.lstrip().startswith("#")


def line_id(line: str) -> str:
    """Return the key under which the origin of a line is stored; no text is stored with it."""
    return sha256(folded(bare(line)).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def change_of(line: str) -> tuple[str, str]:
    """Return since when a line says that it holds, and what it says was before, "" for neither.

    >>> change_of("Works at Acme. (since 2024-06-01; was Globex)")
    ('2024-06-01', 'Globex')
    """
    found = [match for match in _CHANGE.finditer(line) if match["since"] or match["was"]]
    since, was = found[-1].group("since", "was") if found else ("", "")
    return (since or "").strip(), (was or "").strip()


def dead(origins: Origins, sources: Collection[Source]) -> set[str]:
    """Return the ids of the lines that came from any of these sources, which are gone."""
    return {line for line, origin in origins.items() if not {*origin.sources}.isdisjoint(sources)}


def living(state: BankState, gone: Collection[str]) -> BankState:
    """Return a bank without the lines of these ids, and without its synthesis if there are any."""
    if not gone:
        return state
    texts = {name: without(text, gone) for name, text in state.texts.items()}
    return replace(state, texts=texts, synthesis="")


def without_own(state: BankState, session_id: str) -> BankState:
    """Return a bank without the lines that come from one session alone."""
    own = {
        line
        for line, origin in state.origins.items()
        if {name for name, _, _ in origin.sources} == {session_id}
    }
    texts = {name: without(text, own) for name, text in state.texts.items()}
    return replace(state, texts=texts) if own else state


def known_line(line: str, origins: Origins) -> KnownLine:
    """Return a line of a file with what is known of it; without sources it is by hand."""
    since, was = change_of(line)
    origin = origins.get(line_id(line), LineOrigin("", ()))
    sources = tuple((session_id, index) for session_id, index, _ in origin.sources)
    # A note of the user's own has no source; its line begins with its day.
    said = _day(since) or _day(origin.since) or _day(line[:10])
    return KnownLine(line, "file", said, was, sources)


def _day(day: str) -> datetime | None:
    try:
        return datetime.fromisoformat(day).replace(tzinfo=UTC)
    except ValueError:
        return None


def without(text: str, dead: Collection[str]) -> str:
    """Return a text without the lines of these ids; empty lines keep the others' numbers."""
    return "\n".join("" if dead and line_id(line) in dead else line for line in text.split("\n"))


@dataclass(frozen=True, slots=True)
class _Evidence:
    """A note or an earlier line that may hold what a new line says."""

    text: str
    day: str
    sources: tuple[Source, ...]
    terms: frozenset[str]


class Narrowing:
    """Narrows the new lines of one answer to the notes and the earlier lines that they come from.

    ``origins`` are those of its new lines; ``refused`` are the new lines that have no support.
    """

    def __init__(self, texts: Mapping[str, str], known: Origins, writings: Iterable[str]) -> None:
        self.origins: dict[str, LineOrigin] = {}
        self.refused: list[str] = []
        lines = [line for text in texts.values() for line in text.split("\n") if says(line)]
        self._standing = {line_id(line) for line in lines}
        self._known = known
        written = [line for text in writings for line in text.split("\n")]
        self._written = {line_id(line) for line in written}
        self._was = [frozenset(terms(was)) for line in written if (was := change_of(line)[1])]
        self._earlier = [_of_line(line, known.get(line_id(line))) for line in lines]

    def narrow(self, name: str, text: str, before: str, notes: Sequence[Note]) -> str:
        """Return a file's new text without its unsupported lines, and with what must stay.

        ``notes`` are those that may support it. Where a line is left out, the earlier lines that
        it may stand for stay; those that were written by hand always do.
        """
        by_others = name == OTHERS
        allowed = [
            note
            for note in notes
            if not is_said(note) or name == PAST or (note.category == BY_OTHERS) == by_others
        ]
        evidence = [*map(_of_note, allowed), *self._earlier]
        kept: list[str] = []
        refused = len(self.refused)
        for line in text.split("\n"):
            if says(line) and line_id(line) not in self._standing:
                origin = _origin(bare(line), evidence)
                if origin is None:
                    self.refused.append(line)
                    continue
                if origin.sources:
                    self.origins[line_id(line)] = origin
            kept.append(line)
        gone = [
            line
            for line in before.split("\n")
            if says(line)
            and line_id(line) not in self._written
            and (len(self.refused) > refused or line_id(line) not in self._known)
        ]
        text = "\n".join(kept)
        return "\n".join([text.rstrip(), *gone, ""]) if gone else text

    def keeps(self, line: str) -> bool:
        """Return whether what a line said stands behind "was", or comes from the same messages."""
        said, origin = frozenset(terms(line)), self._known.get(line_id(line))
        again = (set(each.sources) for each in self.origins.values())
        return any(was and was <= said for was in self._was) or (
            origin is not None and any(sources.issuperset(origin.sources) for sources in again)
        )


def _of_note(note: Note) -> _Evidence:
    sources = tuple((*source, note.key) for source in note.sources) if is_said(note) else ()
    text = f"{note.agent}: {note.text}"
    # A line says who said it, as the evidence does: the name must not lead to another note.
    return _Evidence(text, day(note.timestamp), sources, frozenset(terms(text)))


def _of_line(line: str, origin: LineOrigin | None) -> _Evidence:
    since, sources = (origin.since, origin.sources) if origin else ("", ())
    return _Evidence(bare(line), since, sources, frozenset(terms(line)))


def _origin(line: str, evidence: Sequence[_Evidence]) -> LineOrigin | None:
    """Return where a new line comes from; None if something in it has no support."""
    # The day in front of a line, or behind "since", is no word of a message.
    said = frozenset(terms(_DATE.sub(" ", line)))
    near = sorted(evidence, key=lambda each: (-len(said & each.terms), each.day))
    near = [each for each in near if said & each.terms]
    # Who said all of it, in whatever words beside it, is where it comes from.
    whole = [each for each in near if said <= each.terms]
    held = Counter(term for each in near for term in said & each.terms)
    # A word that few of them hold tells which one the line is from.
    left = {term for term, count in held.items() if count <= _RARE} or set(held)
    chosen = [*whole]
    while left and not whole:
        chosen.append(max(near, key=lambda each: len(left & each.terms)))
        left -= chosen[-1].terms
    # Words that are shared by none may still mean the same, if nothing in them can be checked.
    chosen = chosen or [each for each in evidence if each.sources]
    wrong = _unsupported(line, chosen)
    for each in near[:_MOST]:
        if not wrong:
            break
        fewer = _unsupported(line, [*chosen, each])
        if len(fewer) < len(wrong):
            chosen, wrong = [*chosen, each], fewer
    if wrong or not chosen:
        return None
    sources = dict.fromkeys(source for each in chosen for source in each.sources)
    return LineOrigin(max(each.day for each in chosen), tuple(sources))


def _unsupported(line: str, evidence: Sequence[_Evidence]) -> tuple[str, ...]:
    """Return the figures, dates and names of a line that the evidence does not have."""
    texts = [each.text for each in evidence]
    days = [each.day for each in evidence if each.day]
    # "Last year" is a year that nobody wrote.
    near = {str(int(day[:4]) + more) for day in days for more in (-1, 0, 1)}
    seen = near.union(_YEAR.findall("\n".join(texts)))
    years = [year for year in _YEAR.findall(line) if year not in seen]
    held = facts.Source(texts, limit=_FACTS, beside=days).fidelity(line)
    return (*held.unsupported, *years)


def by_hand(texts: Mapping[str, str], origins: Origins) -> str:
    """Return the lines of files that were written by hand."""
    lines = [line for text in texts.values() for line in text.split("\n") if says(line)]
    return "\n".join(line for line in lines if line_id(line) not in origins)


def supported(synthesis: str, texts: Iterable[str]) -> str:
    """Return a synthesis without the lines that say what no file says."""
    evidence = [_Evidence(text, "", (), frozenset()) for text in texts]
    return "\n".join(line for line in synthesis.split("\n") if not _unsupported(line, evidence))


def of_texts(origins: Origins, texts: Iterable[str]) -> dict[str, LineOrigin]:
    """Return the origins of the lines that stand in these texts."""
    ids = {line_id(line) for text in texts for line in text.split("\n")}
    return {line: origin for line, origin in origins.items() if line in ids}


def bounded(
    texts: Mapping[str, str], origins: Origins, *, file: int, page: int, count: Callable[[str], int]
) -> dict[str, str]:
    """Return the texts of a page that fits: ``file`` tokens each, ``page`` in all.

    The oldest lines move to the file of the past, and from there the oldest go. Lines that were
    written by hand stay where they are.
    """
    after = dict(texts)
    past = after.pop(PAST, "# Past\n")
    sizes = {name: count(text) for name, text in after.items()}
    moved: list[str] = []
    for name, line in _oldest(after, origins):
        if sizes[name] > file or sum(sizes.values()) > _NOW * page:
            after[name] = without(after[name], {line_id(line)})
            sizes[name] -= count(f"{line}\n")
            moved.append(line)
    if moved:
        past = past.rstrip() + "\n" + "".join(f"- {bare(line)}\n" for line in moved)
    room = min(file, page - sum(sizes.values()))
    size = count(past)
    for _, line in _oldest({PAST: past}, origins):
        if size > room:
            past = without(past, {line_id(line)})
            size -= count(f"{line}\n")
    if moved or PAST in texts:
        after[PAST] = past
    return {name: text if text == texts.get(name) else _tight(text) for name, text in after.items()}


def _oldest(texts: Mapping[str, str], origins: Origins) -> list[tuple[str, str]]:
    """Return the lines of files that are not written by hand, the oldest first."""
    lines = [(name, line) for name, text in texts.items() for line in text.split("\n")]
    lines = [each for each in lines if line_id(each[1]) in origins]
    return sorted(lines, key=lambda each: origins[line_id(each[1])].since)


def _tight(text: str) -> str:
    return re.sub(r"\n{3,}", "\n\n", text).rstrip() + "\n"
