"""Conversion of a session and its log into rows, and of rows into values.

A value that is read equals the value that was written. A row that this module did not write raises
a StoreCorruptError and never becomes a wrong value. Rows are plain tuples in the order of the
column lists here; no other place states that order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, get_args

from hiermem.stores.codec import (
    OPTIONAL_TEXT,
    Shape,
    check,
    mapping,
    pack,
    read_time,
    read_zoned_time,
    shape,
    texts,
    to_micros,
    zone_of,
)
from hiermem.types import (
    Content,
    FilePart,
    ImagePart,
    JsonPart,
    Message,
    MessageState,
    Part,
    SessionRecord,
    StoredMessage,
    TextPart,
    ToolCall,
)
from hiermem.types.transaction import (
    Block,
    KeyEntry,
    LogEvent,
    PlacedBlock,
    Record,
    ViewRecord,
)

#: A message's key is its session's number, shifted by this many bits, plus its index.
INDEX_BITS = 32
_INDEX_MASK = (1 << INDEX_BITS) - 1

SESSION = (
    "s.session, s.id, s.title, s.participants, s.config, s.counter, s.created_at, "
    "h.messages, h.closed, h.version, h.state, s.forked_from, s.forked_at, h.epoch, h.tree, "
    "h.build, h.last_activity"
)
MESSAGE = (
    "message, role, thread, name, content, created_at, zone, tokens, size, hash, key, state, "
    "flags, rest"
)
HEAD = "messages, closed, version, state, epoch, tree, build, last_activity"
FIXED = "title, participants, config, counter, created_at, forked_from, forked_at"
HEAD_TYPES, FIXED_TYPES = "iiisiisi", "SsssiSi"
EVENT = "kind, at, happened_at, detail"
KEY = "key, message_index, fingerprint"
VIEW = "session_id, name, state"
RECORD = "kind, scope, key, body, version"
BLOCK = "kind, start, stop, data"
MESSAGE_TYPES, EVENT_TYPES, KEY_TYPES = "issSSiIiisSsSS", "siis", "siS"
RECORD_TYPES, BLOCK_TYPES = "ssssi", "siib"

_SESSION_SHAPE = shape("isSsssi" + "iiis" + "Siiis" + "is")
_MESSAGE_SHAPE = shape(MESSAGE_TYPES)
_EVENT_SHAPE = shape(EVENT_TYPES)
_KEY_SHAPE = shape(KEY_TYPES)
_VIEW_SHAPE = shape("sss")
_RECORD_SHAPE = shape(RECORD_TYPES)
_BLOCK_SHAPE = shape(BLOCK_TYPES)
_PLACED_SHAPE = shape("ii" + BLOCK_TYPES)
_STATES: tuple[MessageState, ...] = get_args(MessageState)


# -- sessions and events


def read_session(row: Sequence[Any]) -> tuple[int, SessionRecord]:
    """Return (the session's number, its record) from the columns SESSION and its metadata."""
    check(row, _SESSION_SHAPE)
    number, id_, title, participants, config, counter, created_at, *head = row
    metadata = mapping(head[10])
    if not all(type(value) is str for value in metadata.values()):
        raise TypeError
    return number, SessionRecord(
        id_,
        title,
        texts(participants),
        config,
        counter,
        read_time(created_at),
        read_time(head[9]),
        messages=head[0],
        state=head[3],
        closed=bool(head[1]),
        version=head[2],
        epoch=head[6],
        tree=head[7],
        build=head[8],
        forked_from=head[4],
        forked_at=head[5],
        metadata=metadata,
    )


def head_row(record: SessionRecord) -> tuple[Any, ...]:
    """Return the columns HEAD: the fields of a record that every append rewrites."""
    return (
        record.messages,
        int(record.closed),
        record.version,
        record.state,
        record.epoch,
        record.tree,
        record.build,
        to_micros(record.last_activity),
    )


def fixed_row(record: SessionRecord) -> tuple[Any, ...]:
    """Return the columns FIXED: the fields of a record, but metadata, that an append leaves."""
    return (
        record.title,
        pack(record.participants),
        record.config,
        record.counter,
        to_micros(record.created_at),
        record.forked_from,
        record.forked_at,
    )


def same_fixed(one: SessionRecord, other: SessionRecord) -> bool:
    """Return whether two records agree in all fields that an append leaves as they are."""
    return (
        one.config == other.config
        and one.title == other.title
        and one.participants == other.participants
        and one.counter == other.counter
        and one.created_at == other.created_at
        and one.forked_from == other.forked_from
        and one.forked_at == other.forked_at
        and one.metadata == other.metadata
    )


def event_row(event: LogEvent) -> tuple[Any, ...]:
    """Return the columns EVENT for ``event``."""
    return event.kind, event.at, to_micros(event.when), event.detail


def read_event(row: Sequence[Any]) -> LogEvent:
    """Return the event from the columns EVENT."""
    check(row, _EVENT_SHAPE)
    return LogEvent(row[0], row[1], read_time(row[2]), row[3])


# -- messages


def message_row(session: int, stored: StoredMessage) -> tuple[Any, ...]:
    """Return the columns MESSAGE for a message of the session with the number ``session``."""
    message = stored.message
    content = message.content
    at = stored.created_at
    plain = isinstance(content, str)
    rest = None
    if not (
        plain
        and not message.tool_calls
        and message.tool_call_id is None
        and not message.metadata
        and not stored.slices
        and not stored.echoes
    ):
        rest = pack(_rest(stored))
    return (
        session << INDEX_BITS | stored.index,
        message.role,
        message.thread,
        message.name,
        content if plain else None,
        to_micros(at),
        zone_of(at),
        stored.tokens,
        stored.size,
        stored.hash,
        message.key,
        stored.state,
        pack(stored.flags) if stored.flags else None,
        rest,
    )


def _rest(stored: StoredMessage) -> dict[str, Any]:
    """Return the values that few messages have, under the names of their fields."""
    message = stored.message
    rest: dict[str, Any] = {}
    if not isinstance(message.content, str):
        rest["parts"] = [_part(part) for part in message.content]
    if message.tool_calls:
        rest["tool_calls"] = [
            [call.id, call.name, call.arguments, call.type] for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        rest["tool_call_id"] = message.tool_call_id
    if message.metadata:
        rest["metadata"] = message.metadata
    if stored.slices:
        rest["slices"] = stored.slices
    if stored.echoes:
        rest["echoes"] = stored.echoes
    return rest


def _part(part: Part) -> list[Any]:
    match part:
        case TextPart(text):
            return ["text", text]
        case ImagePart(reference, detail):
            return ["image", reference, detail]
        case FilePart(reference, name, media_type):
            return ["file", reference, name, media_type]
        case JsonPart(data):
            return ["json", data]


_PARTS: dict[str, tuple[Callable[..., Part], Shape]] = {
    "text": (TextPart, shape("s")),
    "image": (ImagePart, shape("sS")),
    "file": (FilePart, shape("sSS")),
    "json": (JsonPart, Shape(((dict,),))),
}


def _read_part(packed: Sequence[Any]) -> Part:
    make, shape = _PARTS[packed[0]]
    check(packed[1:], shape)
    return make(*packed[1:])


def _read_call(packed: Sequence[Any]) -> ToolCall:
    check(packed, shape("ssss"))
    return ToolCall(*packed)


def read_echoing(row: Sequence[Any]) -> tuple[int, bool]:
    """Return (index, whether the message has echoes) from the columns message and rest."""
    check(row, shape("is"))
    return row[0] & _INDEX_MASK, bool(mapping(row[1]).get("echoes"))


def read_message(row: Sequence[Any]) -> StoredMessage:
    """Return the message from the columns MESSAGE."""
    check(row, _MESSAGE_SHAPE)
    number, role, thread, name, content, at, zone, tokens, size, hash_, key, state, flags, rest = (
        row
    )
    if state not in _STATES:
        raise ValueError
    created_at = read_zoned_time(at, zone)
    index = number & _INDEX_MASK
    marks = texts(flags) if flags else ()
    if rest is None:
        if content is None:
            raise ValueError
        message = Message(role, content, key=key, name=name, thread=thread, created_at=created_at)
        return StoredMessage(index, message, tokens, size, hash_, state, marks)
    more = mapping(rest)
    parts: Content = content if content is not None else tuple(map(_read_part, more["parts"]))
    call_id = more.get("tool_call_id")
    slices = tuple(more.get("slices", ()))
    echoes = tuple((begin, end) for begin, end in more.get("echoes", ()))
    metadata = more.get("metadata", {})
    if (
        type(metadata) is not dict
        or type(call_id) not in OPTIONAL_TEXT
        or not all(type(char) is int for char in chain(slices, *echoes))
    ):
        raise TypeError
    message = Message(
        role,
        parts,
        key=key,
        name=name,
        thread=thread,
        created_at=created_at,
        tool_calls=tuple(map(_read_call, more.get("tool_calls", ()))),
        tool_call_id=call_id,
        metadata=metadata,
    )
    return StoredMessage(index, message, tokens, size, hash_, state, marks, slices, echoes)


# -- what stands beside the log


def read_key(row: Sequence[Any]) -> tuple[str, KeyEntry]:
    """Return (key, entry) from the columns KEY."""
    check(row, _KEY_SHAPE)
    return row[0], KeyEntry(row[1], row[2])


def read_view(row: Sequence[Any]) -> ViewRecord:
    """Return the view from the columns VIEW."""
    check(row, _VIEW_SHAPE)
    return ViewRecord(*row)


def read_record(row: Sequence[Any]) -> Record:
    """Return the record from the columns RECORD."""
    check(row, _RECORD_SHAPE)
    return Record(*row)


def read_block(row: Sequence[Any]) -> Block:
    """Return the block from the columns BLOCK."""
    check(row, _BLOCK_SHAPE)
    return Block(*row)


def read_placed(row: Sequence[Any]) -> PlacedBlock:
    """Return a block from its segment, its place there, BLOCK, and the columns of its session."""
    check(row[:6], _PLACED_SHAPE)
    segment, place, *block = row[:6]
    return PlacedBlock(read_session(row[6:])[1], Block(*block), segment, place)


def gaps(covered: Iterable[Sequence[int]], stop: int) -> tuple[tuple[int, int], ...]:
    """Return the stretches before ``stop`` that nothing covers; ``covered`` are by start."""
    found: list[tuple[int, int]] = []
    reached = 0
    for low, high in [*covered, (stop, stop)]:
        if reached < min(low, stop):
            found.append((reached, min(low, stop)))
        reached = max(reached, high)
    return tuple(found)
