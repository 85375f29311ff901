"""Reads and writes the trees of a session: nodes, and the revisions of their texts.

A node is its own guard; which nodes a tree has changes with the session's head alone. A revision is
written once. Figures of the serving revision stand beside its node, so that a tally reads no text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from hiermem.records import rows, sessions
from hiermem.records.contract import check, check_write, decode, pack, read_time, refuse, shape
from hiermem.records.tables import TABLES, Key, Row, Scan
from hiermem.records.transaction import Transaction
from hiermem.types import Node, Revision, Status
from hiermem.types import transaction as tx

_LEVEL, _START, _STOP, _STATUS, _INPUT, _DEGRADED, _DIRTY, _SINCE, _MADE = map(
    TABLES["nodes"].columns.index,
    ["level", "start", "stop", "status", "input_tokens", "degraded", "dirty", "since", "made"],
)
#: What ``_figures_of`` returns.
_FIGURES: Final = shape("iiiiiiiFs")
#: The number of windows that are read at a time to find those that hold a message.
_WINDOWS: Final = 4


class Tree(NamedTuple):
    """Where a tree stands: its session, the session's number, and its own."""

    session_id: str
    session: int
    tree: int


async def find_tree(t: Transaction, of: tuple[str, int | None]) -> Tree | None:
    """Return a tree of a session, or the one that serves; None if there is no such session."""
    place = await sessions.place_of(t, of[0])
    if place is None:
        return None
    return Tree(of[0], place.number, place.tree if of[1] is None else of[1])


def _key(t: Transaction, at: Tree, id_: str) -> Key:
    return Key("nodes", (t.tenant, at.session, at.tree, id_))


def _made_key(t: Transaction, at: Tree, id_: str, number: int) -> Key:
    return Key("revisions", (t.tenant, at.session, at.tree, id_, number))


def read_node(row: Row) -> Node:
    """Return the node of a row."""
    return rows.NODES.read((row[3], *row[5:-3]))


def _nodes(found: Iterable[Row | None]) -> list[Node]:
    return decode([row for row in found if row is not None], read_node, "nodes")


async def nodes(t: Transaction, of: tuple[str, int | None], ids: Sequence[str]) -> list[Node]:
    """Return the nodes with these ids that exist, in the order of ``ids``."""
    at = await find_tree(t, of)
    return [] if at is None else await _by_id(t, at, ids)


async def _by_id(t: Transaction, at: Tree, ids: Sequence[str]) -> list[Node]:
    keys = [_key(t, at, id_) for id_ in ids]
    await t.want(keys)
    return _nodes([await t.get(key) for key in keys])


async def _scan(t: Transaction, at: Tree, index: str, *first: Any, **bounds: Any) -> Sequence[Row]:
    scan = Scan("nodes", (t.tenant, at.session, at.tree, *first), index=index, **bounds)
    return await t.scan(scan, sessions.log_guard(t, at.session_id))


async def level(
    t: Transaction, of: tuple[str, int | None], level: int, start: int, stop: int | None = None
) -> list[Node]:
    """Return the nodes of ``level`` with ``start <= ordinal < stop``, by ordinal."""
    at = await find_tree(t, of)
    if at is None or (stop is not None and stop <= start):
        return []
    below = () if stop is None else (stop,)
    return _nodes(await _scan(t, at, "by_level", level, after=(start - 1,), below=below))


async def levels(t: Transaction, of: tuple[str, int | None]) -> dict[int, int]:
    """Return the number of nodes of each level that has any."""
    counts: dict[int, int] = {}
    at = await find_tree(t, of)
    for row in await _scan(t, at, "by_level") if at else ():
        counts[row[_LEVEL]] = counts.get(row[_LEVEL], 0) + 1
    return counts


async def covering(
    t: Transaction, of: tuple[str, int | None], thread: str, index: int
) -> list[Node]:
    """Return the level-1 nodes of ``thread`` whose span holds the message, by ordinal.

    The cost is proportional to the result, not to the session. The spans of a thread's windows
    follow one another; none lies within an earlier one.
    """
    return await spanning(t, of, thread, index, index)


async def spanning(
    t: Transaction, of: tuple[str, int | None], thread: str, index: int, last: int
) -> list[Node]:
    """Return the windows of ``thread`` that hold any message from ``index`` to ``last``."""
    at = await find_tree(t, of)
    found: list[Row] = []
    # Windows follow one another: those that hold a message are the first that end after it.
    after: tuple[Any, ...] = (index,)
    limit = _WINDOWS + (last - index) // _WINDOWS
    while at is not None:
        page = await _scan(t, at, "covering", thread, after=after, limit=limit)
        found += [row for row in page if row[_START] <= last]
        if len(page) < limit or page[-1][_START] > last:
            break
        after, limit = (page[-1][_STOP], page[-1][3]), 4 * limit
    return sorted(_nodes(found), key=lambda node: node.ordinal)


async def unfinished(
    t: Transaction, of: tuple[str, int | None], level: int, after: int, limit: int
) -> list[Node]:
    """Return up to ``limit`` nodes of ``level`` that an update may have to make, by ordinal.

    These are those with ``ordinal > after`` that are not active, or are degraded or
    dirty. The cost is proportional to the result, not to the session.
    """
    at = await find_tree(t, of) if limit > 0 else None
    if at is None:
        return []
    return _nodes(await _scan(t, at, "unfinished", level, after=(after,), limit=limit))


async def outdated(  # noqa: PLR0917 - as it is called
    t: Transaction,
    of: tuple[str, int | None],
    level: int,
    strategies: Sequence[str],
    after: int,
    limit: int,
) -> list[Node]:
    """Return up to ``limit`` nodes of ``level`` made in none of these ways, by ordinal.

    These are the nodes with ``ordinal > after`` whose serving revision's ``strategy`` is not
    among ``strategies``. A node without a text is not outdated. The cost may be proportional to
    the level.
    """
    at = await find_tree(t, of) if limit > 0 else None
    if at is None:
        return []
    found = await _scan(t, at, "by_level", level, after=(after,))
    made = [row for row in found if row[_MADE] and _figures(row)[-1] not in strategies]
    return _nodes(made[:limit])


def _figures(row: Row) -> list[Any]:
    return decode([row[_MADE]], _read_figures, "nodes")[0]


def _read_figures(packed: str) -> list[Any]:
    figures: list[Any] = json.loads(packed)
    check(figures, _FIGURES)
    return figures


async def tally(t: Transaction, of: tuple[str, int | None]) -> list[tx.NodeTally]:
    """Add up the nodes by level, then status."""
    at = await find_tree(t, of)
    groups: dict[tuple[int, Status], list[Row]] = {}
    for row in await _scan(t, at, "by_level") if at else ():
        groups.setdefault((row[_LEVEL], row[_STATUS]), []).append(row)
    return decode(sorted(groups.items()), _added_up, "nodes")


def _added_up(of: tuple[tuple[int, Status], Sequence[Row]]) -> tx.NodeTally:
    (level, status), group = of
    made = [row for row in group if row[_MADE]]
    figures = json.loads(f"[{','.join(row[_MADE] for row in made)}]")
    sums = [sum(figure[place] for figure in figures) for place in range(1, 7)]
    measured = [figure[7] for figure in figures if figure[7] is not None]
    waits = [row[_SINCE] for row in group if row[_SINCE] is not None]
    return tx.NodeTally(
        level,
        status,
        count=len(group),
        made=len(made),
        degraded=sum(row[_DEGRADED] for row in group),
        dirty=sum(row[_DIRTY] for row in group),
        pending=sum(row[_DIRTY] for row in group if row[_SINCE] is not None),
        input_tokens=sum(row[_INPUT] for row in group),
        made_input_tokens=sum(row[_INPUT] for row in made),
        made_tokens=sums[0],
        tokens_in=sums[1],
        tokens_out=sums[2],
        calls=sums[3],
        reused=sums[4],
        duration_ms=sums[5],
        fidelity=sum(measured, 0.0),
        measured=len(measured),
        since=read_time(min(waits)) if waits else None,
    )


async def revisions(
    t: Transaction, of: tuple[str, int | None], wanted: Sequence[tuple[str, int]]
) -> list[Revision]:
    """Return the revisions with these (node id, number) that exist, in the order wanted."""
    at = await find_tree(t, of)
    return [] if at is None else await find_revisions(t, at, wanted)


async def find_revisions(
    t: Transaction, at: Tree, wanted: Iterable[tuple[str, int]]
) -> list[Revision]:
    """Return the revisions of a tree with these (node id, number) that exist."""
    keys = [_made_key(t, at, *place) for place in wanted]
    await t.want(keys)
    guard = sessions.place_key(t, at.session_id)
    found = [await t.get(key, guard) for key in keys]
    return decode([row for row in found if row is not None], read_revision, "revisions")


def read_revision(row: Row) -> Revision:
    """Return the revision of a row."""
    return rows.REVISIONS.read((row[3], row[4], *row[6:-1]))


async def reusable(t: Transaction, input_hash: str) -> Revision | None:
    """Return the tenant's newest revision with that input hash, not degraded, or None."""
    scan = Scan("revisions", (t.tenant, input_hash), index="reusable", limit=1, reverse=True)
    found = decode(await t.scan(scan), read_revision, "revisions")
    return found[0] if found else None


# -- writes


async def put_node(t: Transaction, at: Tree, node: Node, made: Revision | None = None) -> None:
    """Write a node; ``made`` is the revision that comes with it."""
    key = _key(t, at, node.id)
    if node.version == 0:
        t.bet_absent(key)
    row = await t.get(key)
    figures = None if row is None or not row[_MADE] else _figures(row)
    if made is not None and made.number == node.revision:
        figures = _figures_of(made)
    elif figures is None or figures[0] != node.revision:
        found = await find_revisions(t, at, [(node.id, node.revision)]) if node.revision else []
        figures = _figures_of(found[0]) if found else None
    _put(t, at, node, figures)


def add_node(t: Transaction, at: Tree, node: Node) -> None:
    """Write a node that is known to be new; the revision that it serves was written before."""
    row = t.written(_made_key(t, at, node.id, node.revision))
    _put(t, at, node, None if row is None else _figures_of(read_revision(row)))


def _put(t: Transaction, at: Tree, node: Node, figures: list[Any] | None) -> None:
    id_, *columns = rows.NODES.row(node)
    due = node.status != "active" or node.degraded or node.dirty
    t.put("nodes", (
        t.tenant, at.session, at.tree, id_, t.serial(), *columns,
        node.level if due else None,
        node.thread if node.level == 1 else None,
        None if figures is None else pack(figures),
    ))  # fmt: skip


def _figures_of(made: Revision) -> list[Any]:
    return [
        made.number, made.tokens, made.tokens_in, made.tokens_out, made.calls, int(made.reused),
        made.duration_ms, made.fidelity, made.strategy,
    ]  # fmt: skip


async def want_known(
    t: Transaction, at: Tree, nodes: Iterable[Node], others: Iterable[str]
) -> None:
    """Read together the nodes, and serving revisions, that are to be written again."""
    known = [node for node in nodes if node.version]
    await t.want([
        *(_key(t, at, id_) for id_ in (*(node.id for node in known), *others)),
        *(_made_key(t, at, node.id, node.revision) for node in known if node.revision),
    ])  # fmt: skip


async def set_parent(t: Transaction, at: Tree, child: str, parent: str) -> None:
    """Set the parent of a node, and raise its version."""
    row = await t.get(_key(t, at, child))
    if row is None:
        raise refuse(at.session_id, "a parent is for a node that does not exist")
    (node,) = _nodes([row])
    figures = _figures(row) if row[_MADE] else None
    _put(t, at, replace(node, parent=parent, version=node.version + 1), figures)


async def put_revision(t: Transaction, at: Tree, revision: Revision) -> None:
    """Write a revision. Raises UsageError if there is one of that number."""
    if await find_revisions(t, at, [(revision.node_id, revision.number)]):
        raise refuse(at.session_id, f"revision {revision.number} of {revision.node_id} exists")
    add_revision(t, at, revision)


def add_revision(t: Transaction, at: Tree, revision: Revision) -> None:
    """Write a revision that is known to be new."""
    id_, number, *columns = rows.REVISIONS.row(revision)
    t.put("revisions", (
        t.tenant, at.session, at.tree, id_, number, t.serial(), *columns,
        None if revision.degraded else revision.input_hash,
    ))  # fmt: skip


async def copy_revisions(
    t: Transaction, source: Tree, at: Tree, wanted: Sequence[tuple[str, int]]
) -> int:
    """Write revisions of another tree in this one, under the same names; return how many."""
    keys = [_made_key(t, source, *place) for place in wanted]
    await t.want(keys)
    guard = sessions.place_key(t, source.session_id)
    found = [row for key in keys if (row := await t.get(key, guard)) is not None]
    for row in found:
        t.put("revisions", (t.tenant, at.session, at.tree, *row[3:5], t.serial(), *row[6:]))
    return len(found)


async def forget(t: Transaction, at: Tree, ids: Sequence[str]) -> None:
    """Remove all revisions of these nodes, which stay."""
    for node in await _by_id(t, at, ids):
        _put(t, at, node, None)
    for id_ in ids:
        t.wipe(Key("revisions", (t.tenant, at.session, at.tree, id_)))


def drop_trees(t: Transaction, session: int, *tree: int) -> None:
    """Remove all nodes and revisions of a session, or of one of its trees."""
    for table in ("nodes", "revisions"):
        t.wipe(Key(table, (t.tenant, session, *tree)))


async def wanted(
    t: Transaction, of: tuple[str, int | None], writes: Sequence[tx.NodeWrite]
) -> list[Key]:
    """Return the keys of what ``write_nodes`` reads."""
    at = await find_tree(t, of)
    if at is None:
        return []
    ids = [id_ for write in writes for id_ in (write.node.id, *dict(write.inputs))]
    made = [(write.node.id, write.revision.number) for write in writes if write.revision]
    return [*(_key(t, at, id_) for id_ in ids), *(_made_key(t, at, *pair) for pair in made)]


async def write_nodes(
    t: Transaction, of: tuple[str, int | None], writes: Sequence[tx.NodeWrite]
) -> list[bool]:
    """Apply each write whose expectations hold; return for each whether it did."""
    for write in writes:
        check_write(write)
    at = await find_tree(t, of)
    if at is None:
        return [False] * len(writes)
    applied: list[bool] = []
    for write in writes:
        (*before,) = await _by_id(t, at, [write.node.id])
        serving = {
            node.id: node.revision for node in await _by_id(t, at, [i for i, _ in write.inputs])
        }
        holds = bool(before) and before[0].version == write.expected
        holds = holds and all(serving.get(id_) == number for id_, number in write.inputs)
        applied.append(holds)
        if holds:
            await put_node(t, at, write.node, write.revision)
            if write.revision is not None:
                await put_revision(t, at, write.revision)
    return applied
