"""Conversion of everything that is stored into rows, and of rows into values.

A value that is read equals the value that was written. A row that this module did not write raises
a StoreCorruptError and never becomes a wrong value. Rows are plain tuples in the order of the
columns of the formats here; no other place states that order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, Final, get_args

from hiermem import types
from hiermem.records import contract
from hiermem.records.contract import Format, Shape, check, shape
from hiermem.types import transaction as tx
from hiermem.types.tree import split_labels

_STATES: tuple[types.MessageState, ...] = get_args(types.MessageState)
_STATUSES: tuple[types.Status, ...] = get_args(types.Status)
_UNITS: tuple[types.SizeUnit, ...] = get_args(types.SizeUnit)
_TRUSTS: tuple[types.Trust, ...] = get_args(types.Trust)


# -- sessions


def _make_session(*columns: Any) -> tuple[int, types.SessionRecord]:
    number, id_, title, participants, config, counter, created_at, *more = columns
    (
        forked_from, forked_at, messages, closed, version, state, epoch, tree, build, last_activity,
        labels,
    ) = more  # fmt: skip
    if not all(type(value) is str for value in labels.values()):
        raise TypeError
    if messages < 0:
        raise ValueError
    metadata, space = split_labels(labels)
    return number, types.SessionRecord(
        id_, title, participants, config, counter, created_at, last_activity, messages, state,
        closed, version, epoch, tree, build, forked_from, forked_at, metadata, space,
    )  # fmt: skip


#: The fields of a record that every append rewrites, and those, but labels, that it leaves. They
#: are written apart, and read together as SESSIONS.
HEADS: Final[Format[types.SessionRecord]] = Format(
    "messages, closed, version, state, epoch, tree, build, last_activity",
    "ioisiist",
    types.SessionRecord,
)
FIXED: Final[Format[types.SessionRecord]] = Format(
    "title, participants, config, counter, created_at, forked_from, forked_at",
    "SlsstSi",
    types.SessionRecord,
)
#: (The session's number, its record), of SESSION and its labels.
SESSIONS: Final = Format("", f"is{FIXED.letters}{HEADS.letters}m", _make_session, lambda _: ())
_all_fixed: Final = attrgetter(*FIXED.columns.split(", "), "metadata", "space")


def same_fixed(one: types.SessionRecord, other: types.SessionRecord) -> bool:
    """Return whether two records agree in all fields that an append leaves as they are."""
    return bool(_all_fixed(one) == _all_fixed(other))


# -- messages


def _message_row(stored: types.StoredMessage) -> tuple[Any, ...]:
    message = stored.message
    content = message.content
    at = stored.created_at
    plain = isinstance(content, str)
    rest = _rest(stored)
    return (
        stored.index,
        message.role,
        message.thread,
        message.name,
        content if plain else None,
        contract.to_micros(at),
        contract.zone_of(at),
        stored.tokens,
        stored.size,
        stored.hash,
        message.key,
        stored.state,
        contract.pack(stored.flags) if stored.flags else None,
        contract.pack(rest) if rest else None,
    )


def _rest(stored: types.StoredMessage) -> dict[str, Any]:
    """Return the values that few messages have, under the names of their fields."""
    message = stored.message
    content = message.content
    calls = [[call.id, call.name, call.arguments, call.type] for call in message.tool_calls]
    values: dict[str, Any] = {
        "parts": None if isinstance(content, str) else [_part(part) for part in content],
        "tool_calls": calls or None,
        "tool_call_id": message.tool_call_id,
        "metadata": message.metadata or None,
        "slices": stored.slices or None,
        "echoes": stored.echoes or None,
    }
    return {name: value for name, value in values.items() if value is not None}


def _part(part: types.Part) -> list[Any]:
    match part:
        case types.TextPart(text):
            return ["text", text]
        case types.ImagePart(reference, detail):
            return ["image", reference, detail]
        case types.FilePart(reference, name, media_type):
            return ["file", reference, name, media_type]
        case types.JsonPart(data):
            return ["json", data]


_PARTS: dict[str, tuple[Callable[..., types.Part], Shape]] = {
    "text": (types.TextPart, shape("s")),
    "image": (types.ImagePart, shape("sS")),
    "file": (types.FilePart, shape("sSS")),
    "json": (types.JsonPart, Shape(((dict,),))),
}


def _read_part(packed: Sequence[Any]) -> types.Part:
    make, shape = _PARTS[packed[0]]
    check(packed[1:], shape)
    return make(*packed[1:])


def _read_call(packed: Sequence[Any]) -> types.ToolCall:
    check(packed, shape("ssss"))
    return types.ToolCall(*packed)


def _make_message(*columns: Any) -> types.StoredMessage:
    (
        index, role, thread, name, content, at, zone, tokens, size, hash_, key, state, flags, rest,
    ) = columns  # fmt: skip
    if state not in _STATES:
        raise ValueError
    created_at = contract.read_zoned_time(at, zone)
    marks = contract.texts(flags) if flags else ()
    if rest is None:
        if content is None:
            raise ValueError
        message = types.Message(
            role, content, key=key, name=name, thread=thread, created_at=created_at
        )
        return types.StoredMessage(index, message, tokens, size, hash_, state, marks)
    held = contract.mapping(rest)
    parts: types.Content = content if content is not None else tuple(map(_read_part, held["parts"]))
    call_id = held.get("tool_call_id")
    slices = tuple(held.get("slices", ()))
    echoes = tuple((begin, end) for begin, end in held.get("echoes", ()))
    metadata = held.get("metadata", {})
    if (
        type(metadata) is not dict
        or type(call_id) not in contract.OPTIONAL_TEXT
        or not all(type(char) is int for char in chain(slices, *echoes))
    ):
        raise TypeError
    message = types.Message(
        role,
        parts,
        key=key,
        name=name,
        thread=thread,
        created_at=created_at,
        tool_calls=tuple(map(_read_call, held.get("tool_calls", ()))),
        tool_call_id=call_id,
        metadata=metadata,
    )
    return types.StoredMessage(index, message, tokens, size, hash_, state, marks, slices, echoes)


# -- nodes and revisions
#: Matches the level in the id of a node.
_LEVEL_OF = re.compile(r"L(\d{1,9})(?:\.|$)")
_NODE_BEGIN = attrgetter(
    "id", "level", "ordinal", "thread", "span.start", "span.stop", "span.start_char",
    "span.stop_char",
)  # fmt: skip
_NODE_REST: Final = (
    "children, messages, input_size, allotted, input_tokens, allotted_tokens, verbatim, "
    "first_at, last_at, linked, parent, status, revision, version, attempts, error, "
    "degraded, dirty, unit, forced, since"
)
_node_rest = attrgetter(*_NODE_REST.split(", "))


def _node_columns(node: types.Node) -> list[Any]:
    return [*_NODE_BEGIN(node), *node.windows, *_node_rest(node)]


def _make_node(*columns: Any) -> types.Node:
    id_, level, ordinal, thread, start, stop, start_char, stop_char, first, end, *more = columns
    span = types.Span(start, stop, start_char, stop_char)
    node = types.Node(id_, level, ordinal, thread, span, (first, end), *more)
    if node.status not in _STATUSES or node.unit not in _UNITS:
        raise ValueError
    # A child on its own or a higher level is refused, because a walk over it might never end. An
    # id that does not state its level is accepted; only tests use such ids.
    own = _LEVEL_OF.match(id_)
    if own is not None and int(own[1]) != level:
        raise ValueError
    for child in node.children:
        below = _LEVEL_OF.match(child)
        if below is not None and int(below[1]) >= level:
            raise ValueError
    return node


def _make_revision(*columns: Any) -> types.Revision:
    revision = types.Revision(*columns)
    if revision.trust not in _TRUSTS:
        raise ValueError
    return revision


# -- the kinds of rows of a session

MESSAGES: Final = Format(
    "message, role, thread, name, content, created_at, zone, tokens, size, hash, key, state, "
    "flags, rest",
    "issSSiIiisSsSS",
    _make_message,
    _message_row,
)
KEYS: Final = Format(
    "key, message_index, fingerprint",
    "siS",
    lambda key, index, fingerprint: (key, tx.KeyEntry(index, fingerprint)),
    lambda pair: (pair[0], pair[1].index, pair[1].fingerprint),
)
EVENTS: Final = Format(
    "kind, at, happened_at, detail",
    "sits",
    tx.LogEvent,
    attrgetter("kind", "at", "when", "detail"),
)
NODES: Final = Format(
    "id, level, ordinal, thread, start, stop, start_char, stop_char, first_window, stop_window, "
    + _NODE_REST,
    "siiSiiiIii" + "liiiiio" + "ttoSsiiiS" + "oo" + "soT",
    _make_node,
    _node_columns,
)
REVISIONS: Final = Format(
    "node_id, number, text, tokens, input_hash, output_hash, strategy, style, model, created_at, "
    "provenance, anchors, tags, entities, fidelity, unsupported, trust, degraded, reused, "
    "tokens_in, tokens_out, calls, duration_ms, extras",
    "sisisssss" + "tslllFlsoo" + "iiiim",
    _make_revision,
)
VIEWS: Final = Format("session_id, name, state", "sss", tx.ViewRecord)
RECORDS: Final = Format("kind, scope, key, body, version", "ssssi", tx.Record)
RUNS: Final = Format(
    "id, kind, subject, started_at, ended_at, outcome, detail", "ssstTsm", tx.RunRecord
)
ATTEMPTS: Final = Format(
    "id, run_id, session_id, node_id, number, model, started_at, outcome, reason, tokens_in, "
    "tokens_out, ended_at, cached_tokens, reasoning_tokens, cost",
    "ssssistssiiTiiF",
    tx.Attempt,
)
BLOCKS: Final = Format("kind, start, stop, data", "siib", tx.Block)
