"""Conversion of summaries and the journal into rows, and of rows into values.

As in ``rows``, a value that is read equals the value that was written. Rows are plain tuples in the
order of the column lists here; no other place states that order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, get_args

from hiermem.stores.codec import (
    check,
    mapping,
    optional_micros,
    pack,
    read_optional_time,
    read_time,
    shape,
    texts,
    to_micros,
)
from hiermem.types import Node, Revision, SizeUnit, Span, Status, Trust
from hiermem.types.transaction import Attempt, NodeTally, RunRecord, Spent

NODE = (
    "id, level, ordinal, thread, start, stop, start_char, stop_char, first_window, stop_window, "
    "children, messages, input_size, allotted, input_tokens, allotted_tokens, verbatim, "
    "first_at, last_at, linked, sealed, parent, status, revision, version, attempts, error, "
    "degraded, dirty, stale, lease_owner, lease_until, unit, forced, since"
)
REVISION = (
    "node_id, number, text, tokens, input_hash, output_hash, strategy, style, model, created_at, "
    "provenance, anchors, tags, entities, fidelity, unsupported, trust, degraded, reused, "
    "tokens_in, tokens_out, calls, duration_ms, extras"
)
RUN = "id, kind, subject, started_at, ended_at, outcome, detail"
ATTEMPT = (
    "id, run_id, session_id, node_id, number, model, started_at, outcome, reason, tokens_in, "
    "tokens_out, ended_at, cached_tokens, reasoning_tokens, cost"
)

#: Which nodes an update may have to make.
DUE = "sealed = 1 AND (status <> 'active' OR degraded = 1 OR dirty = 1)"
NODE_TYPES = "siiSiiiIii" + "siiiiii" + "iiiiSsiiiS" + "iiiSI" + "siI"
REVISION_TYPES = "sisisssssi" + "ssssFssii" + "iiiis"
RUN_TYPES, ATTEMPT_TYPES = "sssiIss", "ssssisissiiIiiF"

_NODE_SHAPE = shape(NODE_TYPES)
_REVISION_SHAPE = shape(REVISION_TYPES)
_RUN_SHAPE = shape(RUN_TYPES)
_ATTEMPT_SHAPE = shape(ATTEMPT_TYPES)
_SPENT_SHAPE = shape("iiiiiiF")
_TALLY_SHAPE = shape("isiiiiiii" + "iiiiii" + "fiI")
_TREE_SHAPE = shape("i")
#: Matches the level in the id of a sealed or open node.
_LEVEL_OF = re.compile(r"(?:open/)?L(\d{1,9})(?:[./]|$)")
_STATUSES: tuple[Status, ...] = get_args(Status)
_UNITS: tuple[SizeUnit, ...] = get_args(SizeUnit)
_TRUSTS: tuple[Trust, ...] = get_args(Trust)


# -- nodes and revisions


def node_row(node: Node) -> tuple[Any, ...]:
    """Return the columns NODE for ``node``."""
    span = node.span
    return (
        node.id,
        node.level,
        node.ordinal,
        node.thread,
        span.start,
        span.stop,
        span.start_char,
        span.stop_char,
        node.windows[0],
        node.windows[1],
        pack(node.children),
        node.messages,
        node.input_size,
        node.allotted,
        node.input_tokens,
        node.allotted_tokens,
        int(node.verbatim),
        to_micros(node.first_at),
        to_micros(node.last_at),
        int(node.linked),
        int(node.sealed),
        node.parent,
        node.status,
        node.revision,
        node.version,
        node.attempts,
        node.error,
        int(node.degraded),
        int(node.dirty),
        int(node.stale),
        node.lease_owner,
        optional_micros(node.lease_until),
        node.unit,
        int(node.forced),
        optional_micros(node.since),
    )


def read_node(row: Sequence[Any]) -> Node:
    """Return the node from the columns NODE."""
    check(row, _NODE_SHAPE)
    if row[22] not in _STATUSES or row[32] not in _UNITS:
        raise ValueError
    children = texts(row[10])
    _check_levels(row[0], row[1], children)
    return Node(
        row[0],
        row[1],
        row[2],
        row[3],
        Span(row[4], row[5], row[6], row[7]),
        (row[8], row[9]),
        children,
        row[11],
        row[12],
        row[13],
        row[14],
        row[15],
        bool(row[16]),
        read_time(row[17]),
        read_time(row[18]),
        bool(row[19]),
        bool(row[20]),
        row[21],
        row[22],
        row[23],
        row[24],
        row[25],
        row[26],
        bool(row[27]),
        bool(row[28]),
        bool(row[29]),
        row[30],
        read_optional_time(row[31]),
        row[32],
        bool(row[33]),
        read_optional_time(row[34]),
    )


def _check_levels(id_: str, level: int, children: Sequence[str]) -> None:
    """Refuse a node with a child on its own or a higher level; a walk over it might never end.

    An id that does not state its level is accepted; only tests use such ids.
    """
    own = _LEVEL_OF.match(id_)
    if own is not None and int(own[1]) != level:
        raise ValueError
    for child in children:
        below = _LEVEL_OF.match(child)
        if below is not None and int(below[1]) >= level:
            raise ValueError


def revision_row(revision: Revision) -> tuple[Any, ...]:
    """Return the columns REVISION for ``revision``."""
    return (
        revision.node_id,
        revision.number,
        revision.text,
        revision.tokens,
        revision.input_hash,
        revision.output_hash,
        revision.strategy,
        revision.style,
        revision.model,
        to_micros(revision.created_at),
        revision.provenance,
        pack(revision.anchors),
        pack(revision.tags),
        pack(revision.entities),
        revision.fidelity,
        pack(revision.unsupported),
        revision.trust,
        int(revision.degraded),
        int(revision.reused),
        revision.tokens_in,
        revision.tokens_out,
        revision.calls,
        revision.duration_ms,
        pack(revision.extras),
    )


def read_revision(row: Sequence[Any]) -> Revision:
    """Return the revision from the columns REVISION."""
    check(row, _REVISION_SHAPE)
    if row[16] not in _TRUSTS:
        raise ValueError
    return Revision(
        row[0],
        row[1],
        row[2],
        row[3],
        row[4],
        row[5],
        row[6],
        row[7],
        row[8],
        created_at=read_time(row[9]),
        provenance=row[10],
        anchors=texts(row[11]),
        tags=texts(row[12]),
        entities=texts(row[13]),
        fidelity=None if row[14] is None else float(row[14]),
        unsupported=texts(row[15]),
        trust=row[16],
        degraded=bool(row[17]),
        reused=bool(row[18]),
        tokens_in=row[19],
        tokens_out=row[20],
        calls=row[21],
        duration_ms=row[22],
        extras=mapping(row[23]),
    )


# -- the journal


def run_row(run: RunRecord) -> tuple[Any, ...]:
    """Return the columns RUN for ``run``."""
    return (
        run.id,
        run.kind,
        run.subject,
        to_micros(run.started_at),
        optional_micros(run.ended_at),
        run.outcome,
        pack(run.detail),
    )


def read_run(row: Sequence[Any]) -> RunRecord:
    """Return the run from the columns RUN."""
    check(row, _RUN_SHAPE)
    id_, kind, subject, started_at, ended_at, outcome, detail = row
    return RunRecord(
        id_,
        kind,
        subject,
        read_time(started_at),
        read_optional_time(ended_at),
        outcome,
        mapping(detail),
    )


def attempt_row(attempt: Attempt) -> tuple[Any, ...]:
    """Return the columns ATTEMPT for ``attempt``."""
    return (
        attempt.id,
        attempt.run_id,
        attempt.session_id,
        attempt.node_id,
        attempt.number,
        attempt.model,
        to_micros(attempt.started_at),
        attempt.outcome,
        attempt.reason,
        attempt.tokens_in,
        attempt.tokens_out,
        optional_micros(attempt.ended_at),
        attempt.cached_tokens,
        attempt.reasoning_tokens,
        attempt.cost,
    )


def read_attempt(row: Sequence[Any]) -> Attempt:
    """Return the attempt from the columns ATTEMPT."""
    check(row, _ATTEMPT_SHAPE)
    id_, run_id, session_id, node_id, number, model, started_at, *how = row
    return Attempt(
        id_,
        run_id,
        session_id,
        node_id,
        number,
        model,
        read_time(started_at),
        outcome=how[0],
        reason=how[1],
        tokens_in=how[2],
        tokens_out=how[3],
        ended_at=read_optional_time(how[4]),
        cached_tokens=how[5],
        reasoning_tokens=how[6],
        cost=how[7],
    )


# -- totals, and rows that state their tree


def read_spent(row: Sequence[Any]) -> Spent:
    """Return the totals of attempts, in the order of the fields."""
    check(row, _SPENT_SHAPE)
    return Spent(*row)


def read_tally(row: Sequence[Any]) -> NodeTally:
    """Return the totals of nodes, in the order of the fields."""
    check(row, _TALLY_SHAPE)
    level, status, *sums, since = row
    names = [one.name for one in fields(NodeTally)][2:-1]
    counted = dict(zip(names, sums, strict=True))
    return NodeTally(level, status, **counted, since=read_optional_time(since))


def of_tree(read: Callable[[Sequence[Any]], Any]) -> Callable[[Sequence[Any]], tuple[int, Any]]:
    """Return the function that reads the number of a tree, and then what ``read`` reads."""

    def read_both(row: Sequence[Any]) -> tuple[int, Any]:
        check(row[:1], _TREE_SHAPE)
        return row[0], read(row[1:])

    return read_both
