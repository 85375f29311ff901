"""Answers to needs: those of a decision on the connection that writes, others where it is read.

Each answer equals the result of the store's method of the same meaning.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from hiermem.stores.sqlite import reads, trees
from hiermem.stores.sqlite.heads import one_state
from hiermem.types import transaction as asked
from hiermem.types.transaction import Need, SessionNeed

#: More records than a session can have.
_ALL = 1 << 62


def answer(connection: sqlite3.Connection, tenant: str, session_id: str, need: Need) -> Any:  # noqa: PLR0912 - one for each need
    """Return the data that a need names, from the state that the connection sees."""
    of = (connection, tenant, session_id)
    found: Any
    match need:
        case asked.NeedSession():
            found = reads.session(*of)
        case asked.NeedForks():
            found = reads.forks(*of)
        case asked.NeedMessages(start, stop, thread):
            found = reads.messages(*of, start, stop, thread=thread)
        case asked.NeedEchoes():
            found = reads.echoing(*of)
        case asked.NeedFlagged(flag, limit):
            found = reads.flagged(*of, flag, limit=limit)
        case asked.NeedEvents():
            found = reads.events(*of)
        case asked.NeedNodes(ids, tree):
            found = trees.nodes(connection, (tenant, session_id, tree), ids)
        case asked.NeedLevel(level, start, stop, tree):
            found = trees.level(connection, (tenant, session_id, tree), level, start, stop)
        case asked.NeedCovering(thread, index, tree, last):
            end = index if last is None else last
            found = trees.spanning(connection, (tenant, session_id, tree), thread, index, end)
        case asked.NeedProvisional(tree):
            found = trees.provisional(connection, (tenant, session_id, tree))
        case asked.NeedRevisions(wanted, tree):
            found = trees.revisions(connection, (tenant, session_id, tree), wanted)
        case asked.NeedViews(names):
            found = reads.views(*of, names=names)
        case asked.NeedRecords(kind, everywhere):
            scope = None if everywhere else session_id
            found = reads.records(connection, tenant, kind, scope=scope, limit=_ALL)
    return found


def read(connection: sqlite3.Connection, tenant: str, needs: Sequence[SessionNeed]) -> list[Any]:
    """Return the answers to these needs, in their order, all from one state of the file."""
    with one_state(connection):
        return [answer(connection, tenant, *one) for one in needs]
