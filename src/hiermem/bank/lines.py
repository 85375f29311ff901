"""Decides which messages each line of a learning space's files comes from, and what a page holds.

An answer names notes for each file. Each new line is narrowed to the notes, and the earlier lines,
that hold its figures, dates and names; a line that holds others is left out. A line of which
nothing is known was written by hand: answers neither change nor remove it. Erasing a message takes
every line that came from it (``dead``), since nobody can say which words of it came from where.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from itertools import pairwise
from typing import Final, NamedTuple

from hiermem.bank.records import BankState
from hiermem.bank.rules import DAYS, OTHERS, PAST
from hiermem.bank.said import OTHERS as BY_OTHERS
from hiermem.bank.said import is_said
from hiermem.bank.sections import folded
from hiermem.data import word_lists
from hiermem.text import facts
from hiermem.text.measure import day
from hiermem.text.terms import STOP_WORDS, fold, terms, words
from hiermem.types.bank import KnownLine, LineOrigin, Note, Origins, Source

#: The notes that are looked at for a fact which those with a line's words lack, and its facts.
_MOST: Final = 12
_FACTS: Final = 64
#: A word that no more notes and lines hold is telling.
_RARE: Final = 3
#: The share of a page for what holds now; what held before gets the rest, and what that leaves.
NOW: Final = 0.8
#: A file or a page is too long if it is so many times too long.
OVER: Final = 1.25
#: A figure or name has another one's place if the words within so many tokens of it share so many
#: terms with those around that one, and so many times the weight of what they share with its own.
#: A line that tells of more messages has no one place.
_AROUND: Final = 6
_SHARED: Final = 2
_CLEARLY: Final = 2
_TELLS: Final = 4
_TIMES: Final = word_lists("lexicon_words")["time"]
_TOKEN: Final = re.compile(r"\d{4}-\d\d-\d\d|\w+(?:[.,:']\d+)*|[.!?:\n]")
_SINCE: Final = re.compile(r"(?<!\d)\d{4}-\d\d-\d\d(?!\d)|\(since [^;)]*")
#: The letters that a short form of a name has, and those that its forms share before their endings.
_SHORT_FORM: Final = 3
_STEM: Final = 5
_NAME: Final = re.compile(r"\b(?=[^\W\d_])(?![a-z])\w{3,}")
_DAY: Final = re.compile(r"\W*\d{4}-\d\d-\d\d\b")
_DATE: Final = re.compile(r"(?<!\d)\d{4}-\d\d-\d\d(?!\d)")
_NUMBER: Final = re.compile(r"[1-9]\d*")
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
    changes = [match for match in _CHANGE.finditer(line) if match["since"] or match["was"]]
    since, was = changes[-1].group("since", "was") if changes else ("", "")
    return (since or "").strip(), (was or "").strip()


def sources_of(origins: Origins) -> list[Source]:
    """Return the messages that lines come from."""
    return [source for origin in origins.values() for source in origin.sources]


def dead(origins: Origins, sources: Collection[Source]) -> set[str]:
    """Return the ids of the lines that came from any of these sources, which are gone."""
    return {line for line, origin in origins.items() if not {*origin.sources}.isdisjoint(sources)}


def living(state: BankState, gone: Collection[str]) -> BankState:
    """Return a bank without the lines of these ids, and without its synthesis if there are any."""
    texts = {name: without(text, gone) for name, text in state.texts.items()}
    return replace(state, texts=texts, synthesis="") if gone else state


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
    if not dead:
        return text
    return "\n".join("" if line_id(line) in dead else line for line in text.split("\n"))


@dataclass(frozen=True, slots=True)
class _Evidence:
    """A note or an earlier line that may hold what a new line says."""

    text: str
    day: str
    sources: tuple[Source, ...]
    terms: frozenset[str]
    is_note: bool = False


class Narrowing:
    """Narrows the new lines of one answer to the notes and the earlier lines that they come from.

    ``origins`` are those of its new lines; ``refused`` are the new lines that have no support, each
    with the figure, date or name that lacks it.
    """

    def __init__(self, texts: Mapping[str, str], known: Origins, writings: Iterable[str]) -> None:
        self.origins: dict[str, LineOrigin] = {}
        self.refused: list[tuple[str, str]] = []
        lines = [line for text in texts.values() for line in text.split("\n") if says(line)]
        self._standing = {line_id(line) for line in lines}
        self._known = known
        written = [line for text in writings for line in text.split("\n")]
        self._written = {line_id(line) for line in written}
        self._was = [frozenset(terms(was)) for line in written if (was := change_of(line)[1])]
        self._earlier = [_of_line(line, known.get(line_id(line))) for line in lines]

    def narrow(self, name: str, text: str, notes: Sequence[Note]) -> str:
        """Return a file's new text without the lines that ``notes`` do not support."""
        allowed = [
            note
            for note in notes
            if not is_said(note) or name in (PAST, OTHERS) or note.category != BY_OTHERS
        ]
        evidence = [*map(_of_note, allowed), *self._earlier]
        places = _Places(evidence, [word for note in allowed for word in words(note.agent)])
        kept: list[str] = []
        for number, line in enumerate(lines := text.split("\n")):
            if says(line) and line in lines[:number]:
                continue
            if says(line) and line_id(line) not in self._standing:
                origin = _origin(bare(line), evidence)
                wrong = origin if isinstance(origin, str) else places.swapped(line, origin)
                if isinstance(origin, str) or wrong:
                    self.refused.append((line, wrong))
                    continue
                if origin.sources:
                    self.origins[line_id(line)] = origin
            kept.append(line)
        return "\n".join(kept)

    def with_kept(self, text: str, before: str, refused: Iterable[tuple[str, str]]) -> str:
        """Return a file's new text with those of its lines ``before`` that must stay.

        Those that were written by hand stay; so do those that a refused line may stand for, unless
        a line that was taken says as much.
        """
        refused_terms: set[str] = set().union(*(terms(line) for line, _ in refused))
        gone = [
            line
            for line in before.split("\n")
            if says(line)
            and line_id(line) not in self._written
            and (
                line_id(line) not in self._known
                or not (refused_terms.isdisjoint(terms(line)) or self.keeps(line))
            )
        ]
        return "\n".join([text.rstrip(), *gone, ""]) if gone else text

    def keeps(self, line: str) -> bool:
        """Return whether what a line said stands behind "was", or comes from the same messages."""
        said, origin = frozenset(terms(line)), self._known.get(line_id(line))
        again = (set(each.sources) for each in self.origins.values())
        return any(was and was <= said for was in self._was) or (
            origin is not None and any(sources.issuperset(origin.sources) for sources in again)
        )


class _Places:
    """The words around each figure and name of notes and earlier lines.

    A line that swapped one states it beside words that stand with another one in the notes. Who
    speaks is no name there, and the days of a week are counted from a note's: ``unchecked``.
    """

    def __init__(self, evidence: Sequence[_Evidence], speakers: Iterable[str]) -> None:
        counts = Counter(term for each in evidence for term in each.terms)
        self._weights = {term: math.log1p(len(evidence) / count) for term, count in counts.items()}
        self._unchecked = _TIMES.union(speakers)
        self._stated = [(claim, each) for each in evidence for claim in _claims(each.text)]

    def swapped(self, line: str, origin: LineOrigin) -> str:
        """Return a figure or name of a line in whose place the notes have another one, or "".

        In a line of a day, or of many messages, nothing has a place of its own: it is a list.
        """
        if _DAY.match(line) or len(origin.sources) > _TELLS:
            return ""
        values = self._unchecked.union(claim.value for claim in _claims(line))
        for claim in _claims(_CHANGE.sub(" ", bare(line))):
            is_figure = claim.value.isdecimal()
            near = claim.near.difference(terms(claim.value))
            own = self._heaviest(
                (claim.beside & (stated.beside if is_figure else each.terms), near & each.terms)
                for stated, each in self._stated
                if stated.value == claim.value
            )
            other = self._heaviest(
                (beside, near & each.terms)
                for stated, each in self._stated
                if each.is_note
                and stated.value not in values
                and stated.value.isdecimal() == is_figure
                and len(beside := claim.beside & stated.beside) >= _SHARED
            )
            is_clear = all(b > _CLEARLY * a for a, b in zip(own, other, strict=True))
            if is_clear and claim.value not in self._unchecked:
                return claim.value
        return ""

    def _heaviest(self, shared: Iterable[Sequence[Iterable[str]]]) -> list[float]:
        weights = [
            [sum(self._weights[term] for term in part) for part in parts] for parts in shared
        ]
        return [max(part) for part in zip([0.0, 0.0], *weights, strict=True)]


class _Claim(NamedTuple):
    """A figure or name, the plain words beside it, and all that stands near it."""

    value: str
    beside: frozenset[str]
    near: frozenset[str]


def _claims(text: str) -> list[_Claim]:
    """Return the figures and names of a text."""
    tokens = [".", *_TOKEN.findall(_SINCE.sub(" ", text))]
    pairs = pairwise(tokens)
    spoken = [(b, b[0].isupper() and a[0].isalnum() and b[1:].isalnum()) for a, b in pairs]
    claims: list[_Claim] = []
    for at, (token, is_name) in enumerate(spoken):
        value = facts.digits(token) if token[0].isdigit() else token.lower() * is_name
        if value and value not in STOP_WORDS and not _YEAR.fullmatch(value):
            near = spoken[max(0, at - _AROUND) : at + _AROUND + 1]
            plain = " ".join(word for word, is_name in near if not is_name and word.isalpha())
            everything = " ".join(word for word, _ in near)
            claims.append(_Claim(value, frozenset(terms(plain)), frozenset(terms(everything))))
    return claims


def _of_note(note: Note) -> _Evidence:
    sources = tuple((*source, note.key) for source in note.sources) if is_said(note) else ()
    text = f"{note.agent}: {note.text}"
    # A line says who said it, as the evidence does: the name must not lead to another note.
    return _Evidence(text, day(note.timestamp), sources, frozenset(terms(text)), is_note=True)


def _of_line(line: str, origin: LineOrigin | None) -> _Evidence:
    since, sources = (origin.since, origin.sources) if origin else ("", ())
    return _Evidence(bare(line), since, sources, frozenset(terms(line)))


def _origin(line: str, evidence: Sequence[_Evidence]) -> LineOrigin | str:
    """Return where a new line comes from, or what in it has no support."""
    # The day in front of a line, or behind "since", is no word of a message.
    said = frozenset(terms(_DATE.sub(" ", line)))
    near = sorted(evidence, key=lambda each: (-len(said & each.terms), each.day))
    near = [each for each in near if said & each.terms]
    # Who said all of it, in whatever words beside it, is where it comes from.
    whole = [each for each in near if said <= each.terms]
    counts = Counter(term for each in near for term in said & each.terms)
    # A word that few of them hold tells which one the line is from.
    left = {term for term, count in counts.items() if count <= _RARE} or set(counts)
    chosen = [*whole]
    while left and not whole:
        chosen.append(max(near, key=lambda each: len(left & each.terms)))
        left -= chosen[-1].terms
    # Words that are shared by none may still mean the same, if nothing in them can be checked.
    chosen = chosen or [each for each in evidence if each.sources]
    wrong = _unsupported(line, chosen)
    # "We moved it to the 12th" shares no word with "Meeting on 12 June".
    digits = {number for fact in wrong for number in _NUMBER.findall(fact)}
    named = [each for each in evidence if any(fact in each.text for fact in wrong)]
    far = [each for each in evidence if not digits.isdisjoint(_NUMBER.findall(each.text))]
    for each in (*near[:_MOST], *named[:_MOST], *far[:_MOST]):
        if not wrong:
            break
        fewer = _unsupported(line, [*chosen, each])
        if len(fewer) < len(wrong):
            chosen, wrong = [*chosen, each], fewer
    if wrong or not chosen:
        return wrong[0] if wrong else line
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
    unsupported = facts.Source(texts, limit=_FACTS, beside=days).fidelity(line).unsupported
    names = {fold(name) for name in _NAME.findall("\n".join(texts))} if unsupported else ()
    return (*(fact for fact in unsupported if not _is_form(fold(fact), names)), *years)


def _is_form(word: str, names: Iterable[str]) -> bool:
    """Return whether a folded name is another form of one of these.

    A short form, an adjective or a case: "mel" of "melanie", "canadian" of "canada".

    >>> [_is_form(*pair) for pair in [("mel", ["melanie"]), ("canadian", ["canada"]),
    ...                               ("maria", ["mario"]), ("globex", ["global"])]]
    [True, True, False, False]
    """
    for name in names:
        short, long = sorted((word, name), key=len)
        same = next((at for at, letter in enumerate(short) if letter != long[at]), len(short))
        is_ending = same == len(short) - 1 >= _STEM and len(short) < len(long)
        if word.isalpha() and (is_ending or same == len(short) >= _SHORT_FORM):
            return True
    return False


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

    Lines move to the file of the past, and from there the oldest go: first lines of days in the
    files that tell of days and of others, then those of the longest file, the oldest first. A file
    that is little too long stays if the page fits. Lines that were written by hand stay.
    """
    after = dict(texts)
    past = after.pop(PAST, "# Past\n")
    sizes = {name: count(text) for name, text in after.items()}
    long = {name for name, size in sizes.items() if size > OVER * file}
    queues = {name: _oldest(text, origins) for name, text in after.items()}
    moved: list[str] = []

    most = max(NOW * page, page - count(past))

    def full() -> list[str]:
        is_over = sum(sizes.values()) > most
        over = [name for name in sizes if is_over or (name in long and sizes[name] > file)]
        return [name for name in over if queues[name]]

    while names := full():
        # Who somebody is and what they wish is said early on, dated or not, and still holds.
        passing = {OTHERS, *([DAYS] if DAYS in names and _DAY.match(queues[DAYS][0]) else [])}
        name = max(names, key=lambda name: (name in passing, sizes[name]))
        moved.append(line := queues[name].pop(0))
        after[name] = _cut(after[name], line)
        sizes[name] -= count(f"{line}\n")
    if moved:
        past = past.rstrip() + "\n" + "".join(f"- {bare(line)}\n" for line in moved)
    room, size = min(file, page - sum(sizes.values())), count(past)
    for line in _oldest(past, origins):
        if size > room:
            past = _cut(past, line)
            size -= count(f"{line}\n")
    if moved or PAST in texts:
        after[PAST] = past
    return {name: text if text == texts.get(name) else _tight(text) for name, text in after.items()}


def _cut(text: str, line: str) -> str:
    return "\n".join(each for each in text.split("\n") if line_id(each) != line_id(line))


def _oldest(text: str, origins: Origins) -> list[str]:
    """Return the lines of a file that are not written by hand: those of days, then the others.

    The oldest come first; of those of one day, what stands further down.
    """
    known = [line for line in text.split("\n")[::-1] if line_id(line) in origins]
    return sorted(known, key=lambda line: (not _DAY.match(line), origins[line_id(line)].since))


def _tight(text: str) -> str:
    return re.sub(r"\n{3,}", "\n\n", text).rstrip() + "\n"
