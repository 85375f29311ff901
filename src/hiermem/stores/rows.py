"""Conversion of everything that is stored into rows, and of rows into values.

A value that is read equals the value that was written. A row that this module did not write raises
a StoreCorruptError and never becomes a wrong value. Rows are plain tuples in the order of the
columns of the formats here; no other place states that order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Any, Final, get_args

from hiermem import types
from hiermem.stores import contract
from hiermem.stores.contract import Format, Shape, check, shape
from hiermem.types import transaction as tx
from hiermem.types.tree import split_labels

#: A message's key is its session's number, shifted by this many bits, plus its index.
INDEX_BITS = 32
_INDEX_MASK = (1 << INDEX_BITS) - 1
_STATES: tuple[types.MessageState, ...] = get_args(types.MessageState)
_STATUSES: tuple[types.Status, ...] = get_args(types.Status)
_UNITS: tuple[types.SizeUnit, ...] = get_args(types.SizeUnit)
_TRUSTS: tuple[types.Trust, ...] = get_args(types.Trust)


def prefixed(letter: str, columns: str) -> str:
    """Return the columns as those of the table that a statement calls ``letter``."""
    return ", ".join(f"{letter}.{name}" for name in columns.split(", "))


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
    "heads",
    "messages, closed, version, state, epoch, tree, build, last_activity",
    "ioisiist",
    types.SessionRecord,
    owner="session",
)
FIXED: Final[Format[types.SessionRecord]] = Format(
    "sessions",
    "title, participants, config, counter, created_at, forked_from, forked_at",
    "SlsstSi",
    types.SessionRecord,
)
#: (The session's number, its record), of SESSION and its labels.
SESSIONS: Final = Format(
    "sessions", "", f"is{FIXED.letters}{HEADS.letters}m", _make_session, lambda _: ()
)
SESSION: Final = f"s.session, s.id, {prefixed('s', FIXED.columns)}, {prefixed('h', HEADS.columns)}"
_NAMED: Final = shape("is")
_all_fixed: Final = attrgetter(*FIXED.columns.split(", "), "metadata", "space")


def same_fixed(one: types.SessionRecord, other: types.SessionRecord) -> bool:
    """Return whether two records agree in all fields that an append leaves as they are."""
    return bool(_all_fixed(one) == _all_fixed(other))


# -- messages


def message_row(session: int, stored: types.StoredMessage) -> tuple[Any, ...]:
    """Return the columns of MESSAGES for a message of the session with the number ``session``."""
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
        rest = contract.pack(_rest(stored))
    return (
        session << INDEX_BITS | stored.index,
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
        rest,
    )


def _rest(stored: types.StoredMessage) -> dict[str, Any]:
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


def read_echoing(row: Sequence[Any]) -> tuple[int, bool]:
    """Return (index, whether the message has echoes) from the columns message and rest."""
    check(row, _NAMED)
    return row[0] & _INDEX_MASK, bool(contract.mapping(row[1]).get("echoes"))


def _make_message(*columns: Any) -> types.StoredMessage:
    (
        number, role, thread, name, content, at, zone, tokens, size, hash_, key, state, flags, rest,
    ) = columns  # fmt: skip
    if state not in _STATES:
        raise ValueError
    created_at = contract.read_zoned_time(at, zone)
    index = number & _INDEX_MASK
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

#: Which nodes an update may have to make.
DUE = "(status <> 'active' OR degraded = 1 OR dirty = 1)"
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

_KEY_OF = attrgetter("index", "fingerprint")
MESSAGES: Final = Format(
    "messages",
    "message, role, thread, name, content, created_at, zone, tokens, size, hash, key, state, "
    "flags, rest",
    "issSSiIiisSsSS",
    _make_message,
    partial(message_row, 0),
    owner="log",
    order="message",
)
VERSIONS: Final = Format(
    "versions", MESSAGES.columns, MESSAGES.types, _make_message,
    partial(message_row, 0), owner="log", order="message, edit",
)  # fmt: skip
KEYS: Final = Format(
    "keys",
    "key, message_index, fingerprint",
    "siS",
    lambda key, index, fingerprint: (key, tx.KeyEntry(index, fingerprint)),
    lambda pair: (pair[0], *_KEY_OF(pair[1])),
    owner="session",
    order="key",
)
EVENTS: Final = Format(
    "events", "kind, at, happened_at, detail", "sits", tx.LogEvent,
    attrgetter("kind", "at", "when", "detail"), owner="session", order="event",
)  # fmt: skip
NODES: Final = Format(
    "nodes",
    "id, level, ordinal, thread, start, stop, start_char, stop_char, first_window, stop_window, "
    + _NODE_REST,
    "siiSiiiIii" + "liiiiio" + "ttoSsiiiS" + "oo" + "soT",
    _make_node,
    _node_columns,
    owner="tree",
    order="tree, id",
)
REVISIONS: Final = Format(
    "revisions",
    "node_id, number, text, tokens, input_hash, output_hash, strategy, style, model, created_at, "
    "provenance, anchors, tags, entities, fidelity, unsupported, trust, degraded, reused, "
    "tokens_in, tokens_out, calls, duration_ms, extras",
    "sisisssss" + "tslllFlsoo" + "iiiim",
    _make_revision,
    owner="tree",
    order="written",
)
VIEWS: Final = Format(
    "views",
    "session_id, name, state",
    "sss",
    tx.ViewRecord,
    named="session_id",
    order="session_id, name",
)
RECORDS: Final = Format(
    "records", "kind, scope, key, body, version", "ssssi", tx.Record, named="scope", order="record"
)
RUNS: Final = Format(
    "runs", "id, kind, subject, started_at, ended_at, outcome, detail", "ssstTsm", tx.RunRecord,
    named="subject", order="run",
)  # fmt: skip
ATTEMPTS: Final = Format(
    "attempts",
    "id, run_id, session_id, node_id, number, model, started_at, outcome, reason, tokens_in, "
    "tokens_out, ended_at, cached_tokens, reasoning_tokens, cost",
    "ssssistssiiTiiF",
    tx.Attempt,
    named="session_id",
    order="attempt",
)
BLOCKS: Final = Format(
    "blocks", "kind, start, stop, data", "siib", tx.Block, owner="session", order="block"
)
#: The kinds in the order of a dump, but for the session itself.
KINDS: Final[Mapping[str, Format[Any]]] = {
    form.table.removesuffix("s"): form
    for form in (
        MESSAGES, VERSIONS, KEYS, EVENTS, NODES, REVISIONS, VIEWS, RECORDS, RUNS, ATTEMPTS, BLOCKS,
    )
}  # fmt: skip
#: The tables whose rows hold a session's number.
BY_NUMBER: Final = (
    "keys", "events", "nodes", "revisions", "blocks", "session_metadata", "due", "heads",
    "sessions",
)  # fmt: skip
#: The tables of the journal, and those whose rows hold a name; and the column that holds it.
JOURNAL: Final = ((ATTEMPTS.table, ATTEMPTS.named), (RUNS.table, RUNS.named))
BY_NAME: Final = ((VIEWS.table, VIEWS.named), *JOURNAL, (RECORDS.table, RECORDS.named))


# -- totals, and blocks with their places


def _sums(*columns: str) -> str:
    """Return the totals of these columns, each an integer, 0 where there is nothing to add up."""
    return ", ".join(f"CAST(coalesce(sum({name}), 0) AS bigint)" for name in columns)


SPENT: Final = Format(
    "attempts",
    f"count(*), {_sums('tokens_in', 'tokens_out')}, sum(cost), "
    "count(*) FILTER (WHERE outcome IN ('started', 'unknown')), "
    f"{_sums('cached_tokens', 'reasoning_tokens')}",
    "iiiFiii",
    tx.Spent,
    lambda _: (),
)
_OF_NODES: Final = _sums(
    "n.degraded", "n.dirty", "CASE WHEN n.dirty = 1 AND n.since IS NOT NULL THEN 1 ELSE 0 END",
    "n.input_tokens", "CASE WHEN r.number IS NULL THEN 0 ELSE n.input_tokens END", "r.tokens",
    "r.tokens_in", "r.tokens_out", "r.calls", "r.reused", "r.duration_ms",
)  # fmt: skip
#: Of nodes ``n`` of one level and status, each with the revision ``r`` that it serves, if any.
TALLY: Final = Format(
    "nodes",
    f"n.level, n.status, count(*), count(r.number), {_OF_NODES}, "
    "coalesce(sum(r.fidelity), 0.0), count(r.fidelity), min(n.since)",
    "isiiiiiii" + "iiiiii" + "fiT",
    tx.NodeTally,
    lambda _: (),
)
_PLACED: Final = shape("ii")


def items(kind: str, found: Iterable[Sequence[Any]]) -> Iterator[tuple[str, Any, Any]]:
    """Yield the items of a dump that these rows of a kind are: the kind, the place, the value.

    The place is the number of the tree, which is a row's first column, or the key.
    """
    form = KINDS[kind]
    read = form.read_of_tree if form.owner == "tree" else form.read
    value: Any
    for value in contract.decode(found, read, form.table):
        yield (kind, *value) if isinstance(value, tuple) else (kind, "", value)


def read_placed(row: Sequence[Any]) -> tx.PlacedBlock:
    """Return a block from its segment, its place there, BLOCKS, and SESSIONS."""
    check(row[:2], _PLACED)
    return tx.PlacedBlock(SESSIONS.read(row[6:])[1], BLOCKS.read(row[2:6]), row[0], row[1])


def gaps(covered: Iterable[Sequence[int]], stop: int) -> tuple[tuple[int, int], ...]:
    """Return the stretches before ``stop`` that nothing covers; ``covered`` are by start."""
    found: list[tuple[int, int]] = []
    reached = 0
    for low, high in [*covered, (stop, stop)]:
        if reached < min(low, stop):
            found.append((reached, min(low, stop)))
        reached = max(reached, high)
    return tuple(found)
