"""Answers to needs: those of a decision on the connection that writes, others where it is read.

Each answer equals the result of the store's method of the same meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hiermem.stores.contract import answer_to
from hiermem.stores.sqlite import reads, trees
from hiermem.stores.sqlite.heads import Part, Tenant, Tree, one_state
from hiermem.types.transaction import Need, SessionNeed


def answer(part: Tenant, session_id: str, need: Need) -> Any:
    """Return the data that a need names, from the state that the connection sees."""

    def of_tree(number: int | None) -> tuple[Tree]:
        return (Part(part.connection, (part.of, session_id, number)),)

    return answer_to(need, reads, trees, (part, session_id), of_tree)


def read(part: Tenant, needs: Sequence[SessionNeed]) -> list[Any]:
    """Return the answers to these needs, in their order, all from one state of the file."""
    with one_state(part.connection):
        return [answer(part, *one) for one in needs]
