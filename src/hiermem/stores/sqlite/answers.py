"""Answers to needs: those of a decision on the connection that writes, others where it is read.

Each answer equals the result of the store's method of the same meaning.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from hiermem.stores.contract import answer_to
from hiermem.stores.sqlite import reads, trees
from hiermem.stores.sqlite.heads import one_state
from hiermem.types.transaction import Need, SessionNeed


def answer(connection: sqlite3.Connection, tenant: str, session_id: str, need: Need) -> Any:
    """Return the data that a need names, from the state that the connection sees."""
    of = (connection, tenant, session_id)
    return answer_to(need, reads, trees, of, lambda tree: (connection, (*of[1:], tree)))


def read(connection: sqlite3.Connection, tenant: str, needs: Sequence[SessionNeed]) -> list[Any]:
    """Return the answers to these needs, in their order, all from one state of the file."""
    with one_state(connection):
        return [answer(connection, tenant, *one) for one in needs]
