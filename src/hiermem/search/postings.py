"""Decides which passages and terms of a message are indexed, and how they are packed.

Postings are derived data. They hold no text, only numbers of terms, offsets and the facts that
ranking needs. Packed, they are one block of bytes with a checksum; a block that cannot be read is
made again from its messages. Everything here is arrays with one entry for each passage (a *unit*),
in the order of the messages. ``index`` and ``rank`` use them.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Final, TypeAlias
from zlib import compress, crc32, decompressobj

import numpy as np
import numpy.typing as npt

from hiermem.data import word_lists
from hiermem.search.forms import indexed
from hiermem.text import measure
from hiermem.text.slices import Piece, token_points
from hiermem.text.terms import FIRST_PERSON, STEMS, STOP_WORDS, fold, number, stem, terms, words
from hiermem.tokens import stretch_counter
from hiermem.types import ROLES, StoredMessage

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
_MAGIC: Final = b"T3" + STEMS
#: A block that claims to be longer than this, unpacked, is damaged.
_LONGEST: Final = 1 << 28
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_MOST: Final = 255
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
        frame = _frame(who, stored.created_at)
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
