"""Decides which passages and terms of messages are indexed, and which passages hold a term.

*Postings* are derived data: arrays with one entry for each passage (a *unit*), in the order of the
messages. They hold no text, only numbers of terms, offsets and the facts that ranking needs.
Packed, they are one block of bytes with a checksum; a block that cannot be read is made again from
its messages.

An *index* is a function of its postings alone, so it is the same whatever store they came from and
in however many parts they arrived. It keeps the units sorted by term, their windows of two sizes,
and their neighbours; a window never crosses a thread or a sitting (a pause of some hours). ``rank``
scores the units.
"""

from __future__ import annotations

import json
import re
import zlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from itertools import pairwise
from typing import Any, Final, TypeAlias
from zlib import compress, crc32, decompressobj

import numpy as np
import numpy.typing as npt

from hiermem.data import word_lists
from hiermem.search.query import indexed
from hiermem.text import measure
from hiermem.text.slices import Piece, token_points
from hiermem.text.terms import FIRST_PERSON, STOP_WORDS, fold, number, stem, terms, words
from hiermem.tokens import stretch_counter
from hiermem.types import ROLES, Span, StoredMessage

Array: TypeAlias = npt.NDArray[Any]

#: Bits of ``Postings.flags``: the passage ends as a question; it holds a first-person word; it
#: names a time.
ASKS: Final = 1
SPEAKS_OF_SELF: Final = 2
NAMES_TIME: Final = 4

#: A message of at most this many tokens is not cut.
WHOLE: Final = 150
#: A passage of a longer one holds at most this many. Measured on chats with long answers: 100 finds
#: a message of the evidence more often than 200 (.83 to .79 within 4,000 tokens) and shows a little
#: less of it (.69 to .71 of its tokens).
SLICE: Final = 100
#: A longer text is probably cut.
_SHORT: Final = 3 * WHOLE

#: The version of the terms, of the layout and of the stems. Blocks of another one are made again.
#: Two bytes for the version of the stemmers: what holds other stems is made again.
STEMS: Final = crc32(version("snowballstemmer").encode()).to_bytes(4, "big")[:2]
_MAGIC: Final = b"T3" + STEMS
#: A block that claims to be longer than this, unpacked, is damaged.
_LONGEST: Final = 1 << 28
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_MOST: Final = 255
#: What stands for files and media in a text: [media], [file: photo.jpg].
_PLACEHOLDER: Final = re.compile(r"(?:\s*\[[a-z_ ]+(?:: [^\[\]\n]*)?\])+\s*")
_QUESTION_MARKS: Final = ("?", "\uff1f", "\u061f")
_CLOSING: Final = " \t\r\n\"')]*_\u201d\u2019\u00bb"
#: Names of roles instead of people; they are no terms.
_GENERIC: Final = frozenset(("user", "assistant", "system", "tool", "human", "ai"))
_WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip

#: The terms of words that name a time.
_TIMES: Final = frozenset(
    [stem(fold(word)) for word in word_lists("query_words")["time"]]
    + [str(year) for year in range(1900, 2100)]
)
#: The tokens of a window, level by level. Larger windows help navigation but not scoring.
LEVELS: Final = (400, 1_600)
#: A longer pause begins a new sitting, in microseconds: four hours.
SITTING: Final = 4 * 3_600 * 1_000_000
#: Terms that arrived since the last sorting are scanned. Beyond this share all are sorted again,
#: but only after ``_SCANS`` scans, because sorting takes as long as some hundred of them.
_TAIL: Final = 0.1
_LEAST_TAIL: Final = 2_048
_SCANS: Final = 128

_USER: Final = ROLES.index("user")
_ASSISTANT: Final = ROLES.index("assistant")

# The arrays of a block in their order, each with its type there.
_FIELDS: Final = {
    "message": "<u4",
    "begin": "<u4",
    "end": "<u4",
    "tokens": "<u4",
    "whole": "<u4",
    "length": "<u4",
    "at": "<i8",
    "speaker": "<u4",
    "thread": "<u4",
    "role": "u1",
    "flags": "u1",
    "sizes": "<u4",
}


#: The fields of ``Postings`` that have one place for each unit.
COLUMNS: Final = tuple(_FIELDS)


@dataclass(frozen=True, slots=True, eq=False)
class Postings:
    """The units of a run of messages.

    ``message`` is the index in the session, ``begin`` and ``end`` the stretch of its body,
    ``tokens`` those of the stretch and ``whole`` those of all the message's passages. ``length``
    counts the unit's terms without other forms, ``at`` is its time in microseconds since 1970,
    ``speaker`` and ``thread`` are positions in the tables, ``role`` one in ``types.ROLES``. Unit i
    holds the next ``sizes[i]`` entries of ``terms`` (numbers, rising) and ``counts`` (up to 255).
    """

    message: Array
    begin: Array
    end: Array
    tokens: Array
    whole: Array
    length: Array
    at: Array
    speaker: Array
    thread: Array
    role: Array
    flags: Array
    sizes: Array
    terms: Array
    counts: Array
    speakers: tuple[str, ...]
    threads: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.message)

    @property
    def nbytes(self) -> int:
        """Return the bytes of all arrays, for a cache that is bounded by them."""
        arrays = (getattr(self, name) for name in (*_FIELDS, "terms", "counts"))
        return sum(array.nbytes for array in arrays)


def passages(
    body: str, count: Callable[[str], int], *, echoes: Sequence[tuple[int, int]] = ()
) -> list[tuple[int, int, int]]:
    """Cut a body, as ``measure.body`` returns it, into the passages that are searched and returned.

    Returns where each begins and ends in the body, and its tokens.
    Together they are the body without echoes, the memory that hiermem itself rendered and that came
    back, which is never returned as if it had been said. A short message is one passage; a
    longer one is cut at line ends, so that a search returns the relevant part and not the whole.
    Empty text and white space give no passage. Time is linear in the body.
    """
    parts: list[tuple[int, int, int]] = []
    for begin, end in measure.without_echoes(0, len(body), sorted(echoes)):
        text = body[begin:end]
        if not text.strip():
            continue
        stretches = stretch_counter(text, count) if len(text) > _SHORT else None
        tokens = stretches(0, len(text)) if stretches else count(text)
        if tokens <= WHOLE:
            parts.append((begin, end, tokens))
            continue
        stretches = stretches or stretch_counter(text, count)
        cuts = token_points([Piece(text)], SLICE, count, stretches=stretches)
        for low, high in pairwise((0, *cuts, len(text))):
            if text[low:high].strip():
                parts.append((begin + low, begin + high, stretches(low, high)))
    return parts


def collect(messages: Iterable[StoredMessage], count: Callable[[str], int]) -> Postings:
    """Read messages into postings; ``count`` counts tokens.

    A message without text (erased, or empty) gives no unit.
    """
    rows: list[tuple[int, ...]] = []
    numbers: list[int] = []
    counts: list[int] = []
    speakers: dict[str, int] = {}
    threads: dict[str, int] = {}
    for stored in messages:
        message = stored.message
        body = measure.body(message)
        parts = passages(body, count, echoes=stored.echoes)
        if not parts:
            continue
        who = measure.speaker(message)
        speaker = speakers.setdefault(who, len(speakers))
        thread = threads.setdefault(message.thread, len(threads))
        # That somebody sent a file at some time is no answer to what he said then.
        frame = [] if _PLACEHOLDER.fullmatch(body) else _frame(who, stored.created_at)
        time = (stored.created_at - _EPOCH) // _MICROSECOND
        whole = sum(tokens for *_, tokens in parts)
        role = ROLES.index(message.role)
        for begin, end, tokens in parts:
            text = body[begin:end]
            spoken = words(text)
            entries = [stem(word) for word in spoken if word not in STOP_WORDS]
            flags = ASKS * text.rstrip(_CLOSING).endswith(_QUESTION_MARKS)
            flags += NAMES_TIME * (not _TIMES.isdisjoint(entries))
            flags += SPEAKS_OF_SELF * (not FIRST_PERSON.isdisjoint(spoken))
            entries += frame
            length = len(entries)
            entries += indexed(text, spoken)
            tally = sorted(Counter(map(number, entries)).items())
            numbers += [term for term, _ in tally]
            counts += [times for _, times in tally]
            rows.append(
                (
                    stored.index, begin, end, tokens, whole, length, time,
                    speaker, thread, role, flags, len(tally),
                )
            )  # fmt: skip
    return _assemble(rows, numbers, counts, tuple(speakers), tuple(threads))


def _assemble(
    rows: Sequence[tuple[int, ...]],
    numbers: Sequence[int],
    counts: Sequence[int],
    speakers: tuple[str, ...],
    threads: tuple[str, ...],
) -> Postings:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(_FIELDS)
    named = {
        name: np.array(column, dtype=kind)
        for (name, kind), column in zip(_FIELDS.items(), columns, strict=True)
    }
    return Postings(
        **named,
        terms=np.array(numbers, dtype="<u4"),
        counts=np.minimum(np.array(counts, dtype="<u4"), _MOST).astype("u1"),
        speakers=speakers,
        threads=threads,
    )


def _frame(who: str, time: datetime) -> list[str]:
    """Return the terms that a unit has besides its text: of its speaker's name and its date.

    A date is written in the words in which people ask for it: "in May" finds what was said in May.
    """
    time = time.astimezone(UTC)
    date = f"{_WEEKDAYS[time.weekday()]} {_MONTHS[time.month - 1]} {time.year} {time.day}"
    return terms(f"{'' if is_generic(who) else who} {date}")


def frame_of(postings: Postings, unit: int) -> list[int]:
    """Return the numbers of the terms that a unit has besides its text."""
    time = _EPOCH + int(postings.at[unit]) * _MICROSECOND
    return list(map(number, _frame(postings.speakers[postings.speaker[unit]], time)))


def term_lists(postings: Postings, units: Iterable[int]) -> list[list[int]]:
    """Return the numbers of the terms of each of the units."""
    starts = np.append(0, np.cumsum(postings.sizes, dtype=np.int64))
    return [postings.terms[starts[unit] : starts[unit + 1]].tolist() for unit in units]


def spoken(speaker: str, text: str) -> str:
    """Return the text of a unit as an embedder receives it: with the name of the speaker.

    >>> spoken("Ada", "I bought a car."), spoken("Assistant", "Good.")
    ('Ada: I bought a car.', 'Good.')
    """
    return text if is_generic(speaker) else f"{speaker}: {text}"


def is_generic(name: str) -> bool:
    """Return whether a speaker's name is only that of a role."""
    return name.lower() in _GENERIC


def join(parts: Sequence[Postings]) -> Postings:
    """Join the postings of consecutive runs into one."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return _assemble((), (), (), (), ())
    named = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in (*_FIELDS, "terms", "counts")
    }
    speakers, named["speaker"] = _merged((part.speakers, part.speaker) for part in parts)
    threads, named["thread"] = _merged((part.threads, part.thread) for part in parts)
    return Postings(**named, speakers=speakers, threads=threads)


def _merged(columns: Iterable[tuple[tuple[str, ...], Array]]) -> tuple[tuple[str, ...], Array]:
    """Join columns of positions, each in its table of names; return the one table, the column."""
    positions: dict[str, int] = {}
    mapped: list[Array] = []
    for table, column in columns:
        moved = [positions.setdefault(name, len(positions)) for name in table]
        mapped.append(np.array(moved, dtype="<u4")[column] if len(column) else column)
    return tuple(positions), np.concatenate(mapped)


def runs(
    starts: Iterable[int], *, size: int = 1, gap: int = 0, most: int = _LONGEST
) -> list[tuple[int, int]]:
    """Join stretches of one ``size``, at rising ``starts``, that are at most ``gap`` apart.

    Each run is at most ``most`` long; it is returned as its start and stop.

    >>> runs([0, 1, 4, 9], gap=2)
    [(0, 5), (9, 10)]
    """
    found: list[tuple[int, int]] = []
    for start in starts:
        if found and start - found[-1][1] <= gap and start - found[-1][0] < most:
            found[-1] = (found[-1][0], start + size)
        else:
            found.append((start, start + size))
    return found


def sealed(magic: bytes, data: bytes) -> bytes:
    """Return data as a store keeps it: after its magic, and before a CRC-32 of both."""
    data = magic + data
    return data + crc32(data).to_bytes(4, "little")


def opened(magic: bytes, data: bytes) -> bytes | None:
    """Return sealed data; None if it has another magic or is damaged."""
    if data[:4] != magic or crc32(data[:-4]).to_bytes(4, "little") != data[-4:]:
        return None
    return data[4:-4]


def titled(magic: bytes, title: Sequence[Sequence[str | int]], block: bytes) -> bytes:
    """Return a block after its title, which is written as JSON, and its magic."""
    head = json.dumps(title, separators=(",", ":")).encode()
    return magic + len(head).to_bytes(4, "little") + head + block


def untitled(magic: bytes, data: bytes) -> tuple[list[Any], bytes]:
    """Return the title of a block, and the block; raises ValueError if it is damaged."""
    size = int.from_bytes(data[4:8], "little")
    if data[:4] != magic or len(data) < 8 + size:
        raise ValueError("no such block")
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def pack(postings: Postings) -> bytes:
    """Write postings as bytes: a magic, a length, compressed content, and a CRC-32.

    The content is a JSON head with the arrays in little-endian; compressed it takes less than half.
    """
    head = json.dumps(
        {
            "units": len(postings),
            "terms": len(postings.terms),
            "speakers": postings.speakers,
            "threads": postings.threads,
        },
        separators=(",", ":"),
    ).encode()
    parts = [len(head).to_bytes(4, "little"), head]
    parts += [getattr(postings, name).astype(kind).tobytes() for name, kind in _FIELDS.items()]
    parts += [postings.terms.astype("<u4").tobytes(), postings.counts.astype("u1").tobytes()]
    raw = b"".join(parts)
    return sealed(_MAGIC, len(raw).to_bytes(4, "little") + compress(raw, 1))


def unpack(data: bytes) -> Postings | None:
    """Read a block; None if it has another version, is damaged or is inconsistent.

    A store's data is not trusted: every position that a number refers to must exist.
    """
    content = opened(_MAGIC, data)
    if content is None or len(content) < 4:
        return None
    length = int.from_bytes(content[:4], "little")
    try:
        data = decompressobj().decompress(content[4:], min(length, _LONGEST) + 1)
        if len(data) != length:
            return None
        size = int.from_bytes(data[:4], "little")
        head = json.loads(data[4 : 4 + size])
        units, entries = int(head["units"]), int(head["terms"])
        named, offset = {}, 4 + size
        layout = [(name, kind, units) for name, kind in _FIELDS.items()]
        for name, kind, many in [*layout, ("terms", "<u4", entries), ("counts", "u1", entries)]:
            named[name] = np.frombuffer(data, dtype=kind, count=many, offset=offset)
            offset += named[name].nbytes
        postings = Postings(
            **named,
            speakers=tuple(str(name) for name in head["speakers"]),
            threads=tuple(str(name) for name in head["threads"]),
        )
    except (ValueError, KeyError, TypeError, RecursionError, zlib.error):
        return None
    return postings if offset == len(data) and _makes_sense(postings) else None


def _makes_sense(postings: Postings) -> bool:
    if int(postings.sizes.sum(dtype=np.int64)) != len(postings.terms):
        return False
    if not len(postings):
        return True
    return bool(
        postings.speaker.max() < len(postings.speakers)
        and postings.thread.max() < len(postings.threads)
        and postings.role.max() < len(ROLES)
        and (postings.begin <= postings.end).all()
        and (np.diff(postings.message.astype(np.int64)) >= 0).all()
    )


@dataclass(frozen=True, slots=True, eq=False)
class Inverted:
    """Units by term: ``terms[k]`` is in ``units[ends[k - 1]:ends[k]]``.

    ``counts`` say for each of these units how often it holds the term, or how much that counts.
    """

    terms: Array
    ends: Array
    units: Array
    counts: Array

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays."""
        return sum(a.nbytes for a in (self.terms, self.ends, self.units, self.counts))

    def entry(self, position: int) -> tuple[Array, Array]:
        """Return the units that hold the term at a position, rising, and its counts in them."""
        entries = slice(self.ends[position - 1] if position else 0, self.ends[position])
        return self.units[entries], self.counts[entries]

    def find(self, number: int) -> tuple[Array, Array] | None:
        """Return the units that hold a term, rising, and its counts; None if none holds it."""
        position = int(np.searchsorted(self.terms, number))
        if position >= len(self.terms) or self.terms[position] != number:
            return None
        return self.entry(position)


class Index:
    """All units of a session, ready for queries.

    ``sitting`` numbers the sittings; ``before`` and ``after`` are the neighbouring units of the
    same sitting, or -1; ``opener`` is, for the units of a reply, a unit of the user's message that
    it answers, or -1. ``windows`` are, for each size, each unit's window, and ``window_lengths``
    the terms of each window. An index is immutable: ``extended`` returns a longer one.
    """

    def __init__(self, units: Postings, *, _main: Inverted | None = None, _scans: int = 0) -> None:
        self.units = units
        # Threads may search at once, and each reads both parts as they belong together.
        self._terms = _parts(units, _main)
        self._scans = _scans
        self.length = np.maximum(units.length, 1).astype(np.float64)
        order = np.argsort(units.thread, kind="stable")
        self.sitting = _sittings(units, order)
        self.before, self.after = _neighbours(self.sitting, order)
        self.opener = _openers(units, order)
        self.windows = tuple(_windows(units, self.sitting, order, limit) for limit in LEVELS)
        self.window_lengths = tuple(np.bincount(node, self.length) for node in self.windows)

    def __len__(self) -> int:
        return len(self.units)

    @property
    def nbytes(self) -> int:
        """Return the approximate size of the index in bytes."""
        columns = (self.length, self.sitting, self.before, self.after, self.opener)
        arrays = (*columns, *self.windows, *self.window_lengths)
        terms = sum(part.nbytes for part in self._terms)
        return self.units.nbytes + terms + sum(array.nbytes for array in arrays)

    def extended(self, more: Sequence[Postings]) -> Index:
        """Return the index with the postings of the following messages added."""
        return Index(join([self.units, *more]), _main=self._terms[0], _scans=self._scans)

    def covered(self, span: Span, thread: str | None) -> slice | Array:
        """Return the units of the messages of a span; with a ``thread``, only that thread's."""
        units = self.units
        inside = slice(*np.searchsorted(units.message, (span.start, span.stop)).tolist())
        if thread is None:
            return inside
        wanted = units.threads.index(thread) if thread in units.threads else -1
        units_of_thread: Array = inside.start + np.flatnonzero(units.thread[inside] == wanted)
        return units_of_thread

    def find(self, numbers: Sequence[int]) -> tuple[Array, Array]:
        """Return the units that hold any of the terms, and how often each does.

        Each unit occurs once; the counts of several terms are added.
        """
        if not len(numbers):
            return np.empty(0, dtype=np.uint32), np.empty(0)
        rows, counts, occurring = self._gather(np.unique(np.array(numbers, dtype=np.uint32)))
        if occurring <= 1:
            return rows, counts
        total = np.bincount(rows, counts, len(self))
        rows = np.flatnonzero(total)
        return rows, total[rows]

    def _gather(self, numbers: Array) -> tuple[Array, Array, int]:
        """Return the units of each term in turn, the counts, and how many terms may occur."""
        main, tail = self._terms
        if len(tail.terms) > max(_LEAST_TAIL, _TAIL * len(main.units)):
            self._scans += len(numbers)
            if self._scans > _SCANS:
                units = self.units
                every = inverted(units.terms, rows_of(units), units.counts)
                main, tail = self._terms = _parts(units, every)
                self._scans = 0
        entries: list[tuple[Array, Array]] = []
        if len(main.terms):
            places = np.minimum(np.searchsorted(main.terms, numbers), len(main.terms) - 1)
            entries += map(main.entry, places[main.terms[places] == numbers].tolist())
        if len(tail.terms):
            if len(numbers) == 1:
                hits = np.flatnonzero(tail.terms == numbers[0])
            else:
                hits = np.flatnonzero(np.isin(tail.terms, numbers))
            entries.append((tail.units[hits], tail.counts[hits]))
        if not entries:
            return np.empty(0, dtype=np.uint32), np.empty(0), 0
        occurring = len(numbers) if len(tail.terms) else len(entries)
        rows, counts = map(np.concatenate, zip(*entries, strict=True))
        return rows, counts.astype(np.float64), occurring


def _parts(units: Postings, main: Inverted | None) -> tuple[Inverted, Inverted]:
    """Return the sorted terms, which come first in ``units``, and the unsorted ones after them.

    The unsorted ones have no ends.
    """
    empty = np.empty(0, dtype=np.uint32)
    main = main or Inverted(empty, empty, empty, empty)
    start, rows = len(main.units), rows_of(units)
    rows = rows[start:].copy() if start else rows
    return main, Inverted(units.terms[start:], empty, rows, units.counts[start:])


def rows_of(units: Postings) -> Array:
    """Return for each term of ``units`` the unit that holds it."""
    return np.repeat(np.arange(len(units), dtype=np.uint32), units.sizes)


def inverted(terms: Array, units: Array, counts: Array) -> Inverted:
    """Sort the terms of units, which are numbers of 32 bits.

    numpy sorts 16 bits several times faster than 32, in linear time.
    """
    low = np.argsort(terms.astype(np.uint16), kind="stable")
    high = (terms >> 16).astype(np.uint16)
    order = low[np.argsort(high[low], kind="stable")]
    ordered = terms[order]
    last = np.flatnonzero(np.r_[ordered[1:] != ordered[:-1], True]) if len(ordered) else order
    return Inverted(ordered[last], last + 1, units[order], counts[order])


def _sittings(units: Postings, order: Array) -> Array:
    """Return each unit's sitting as a number; ``order`` has each thread's units together."""
    sitting = np.zeros(len(units), dtype=np.int64)
    if len(units):
        times, thread = units.at[order], units.thread[order]
        begins = (np.abs(np.diff(times)) > SITTING) | (np.diff(thread.astype(np.int64)) != 0)
        sitting[order] = np.r_[0, np.cumsum(begins)]
    return sitting


def _neighbours(sitting: Array, order: Array) -> tuple[Array, Array]:
    before = np.full(len(order), -1, dtype=np.int64)
    after = before.copy()
    together = sitting[order][1:] == sitting[order][:-1]
    before[order[1:][together]] = order[:-1][together]
    after[order[:-1][together]] = order[1:][together]
    return before, after


def _openers(units: Postings, order: Array) -> Array:
    """Return for each unit of a reply the last unit of the user's message before it."""
    opener = np.full(len(order), -1, dtype=np.int64)
    role, thread = units.role[order], units.thread[order]
    positions = np.arange(len(order))
    last = (
        np.maximum.accumulate(np.where(role == _USER, positions, -1)) if len(order) else positions
    )
    replies = (role == _ASSISTANT) & (last >= 0)
    replies[replies] = thread[last[replies]] == thread[replies]
    opener[order[replies]] = order[last[replies]]
    return opener


def _windows(units: Postings, sitting: Array, order: Array, limit: int) -> Array:
    """Return each unit's window as a number; each has at most ``limit`` tokens of one sitting."""
    total = np.cumsum(units.tokens[order], dtype=np.int64).tolist()
    edges = [*(np.flatnonzero(np.diff(sitting[order])) + 1).tolist(), len(total)]
    starts: list[int] = []
    start = edge = 0
    while start < len(total):
        starts.append(start)
        room = (total[start - 1] if start else 0) + limit
        stop = max(start + 1, bisect_right(total, room, start))
        edge += edges[edge] <= start
        start = min(stop, edges[edge])
    begins = np.zeros(len(total), dtype=np.int64)
    begins[starts[1:]] = 1
    window = np.empty(len(total), dtype=np.int64)
    window[order] = np.cumsum(begins)
    return window
