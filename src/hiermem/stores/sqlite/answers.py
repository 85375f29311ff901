"""Answers to needs: those of a decision on the connection that writes, others where it is read.

Each answer equals the result of the store's method of the same meaning.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from hiermem.stores.sqlite import reads, records, tree_reads
from hiermem.stores.sqlite.reads import one_state
from hiermem.types.transaction import (
    Need,
    NeedCovering,
    NeedEchoes,
    NeedEvents,
    NeedFlagged,
    NeedForks,
    NeedLevel,
    NeedMessages,
    NeedNodes,
    NeedProvisional,
    NeedRecords,
    NeedRevisions,
    NeedSession,
    NeedViews,
    SessionNeed,
)

#: More records than a session can have.
_ALL = 1 << 62


def answer(connection: sqlite3.Connection, tenant: str, session_id: str, need: Need) -> Any:  # noqa: PLR0912 - one for each need
    """Return the data that a need names, from the state that the connection sees."""
    of = (connection, tenant, session_id)
    found: Any
    match need:
        case NeedSession():
            found = reads.session(*of)
        case NeedForks():
            found = reads.forks(*of)
        case NeedMessages(start, stop, thread):
            found = reads.messages(*of, start, stop, thread=thread)
        case NeedEchoes():
            found = reads.echoing(*of)
        case NeedFlagged(flag, limit):
            found = reads.flagged(*of, flag, limit)
        case NeedEvents():
            found = reads.events(*of)
        case NeedNodes(ids, tree):
            found = tree_reads.nodes(*of, ids, tree=tree)
        case NeedLevel(level, start, stop, tree):
            found = tree_reads.level(*of, level, start=start, stop=stop, tree=tree)
        case NeedCovering(thread, index, tree, last):
            found = tree_reads.covering(*of, thread, index, tree=tree, last=last)
        case NeedProvisional(tree):
            found = tree_reads.provisional(*of, tree=tree)
        case NeedRevisions(wanted, tree):
            found = tree_reads.revisions(*of, wanted, tree=tree)
        case NeedViews(names):
            found = reads.views(*of, names=names)
        case NeedRecords(kind, everywhere):
            scope = None if everywhere else session_id
            found = records.find(connection, tenant, kind, scope=scope, key=None, limit=_ALL)
    return found


def answers(connection: sqlite3.Connection, tenant: str, needs: Sequence[SessionNeed]) -> list[Any]:
    """Return the answers to these needs, all from one state."""
    with one_state(connection):
        return [answer(connection, tenant, *one) for one in needs]
