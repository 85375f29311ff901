"""Answers to a decision's requests, read on the connection and in the transaction that writes.

Each answer equals the result of the store's method of the same meaning.
"""

from __future__ import annotations

from typing import Any

from hiermem.stores.sqlite import reads, records, tree_reads
from hiermem.stores.sqlite.workers import Transaction
from hiermem.types.transaction import (
    Need,
    NeedCovering,
    NeedEchoes,
    NeedEvents,
    NeedForks,
    NeedLevel,
    NeedMessages,
    NeedNodes,
    NeedProvisional,
    NeedRecords,
    NeedRevisions,
    NeedSession,
    NeedViews,
)

#: More records than a session can have.
_ALL = 1 << 62


def answer(transaction: Transaction, tenant: str, session_id: str, need: Need) -> Any:
    """Return the data that a decision requests, from the state that its changes will apply to."""
    connection = transaction.connection
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
        case NeedViews():
            found = reads.views(*of)
        case NeedRecords(kind, everywhere):
            scope = None if everywhere else session_id
            found = records.find(connection, tenant, kind, scope=scope, key=None, limit=_ALL)
    return found
