"""Reads the graph of all sessions of a tenant, by name.

Only the records of the names asked for are read. So a question costs what the sessions say about
that name, not what the tenant holds. ``extraction.plan`` joins them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from hiermem import types
from hiermem.errors import UsageError
from hiermem.handle import Handle
from hiermem.text.policy import check_name
from hiermem.types import trivector

if TYPE_CHECKING:
    from hiermem.extraction.plan import Named

#: The most sessions that one question reads.
_SESSIONS: Final = 100_000


class AsyncGraph:
    """The graph of everything that was extracted for one tenant. Made by ``memory.graph``."""

    def __init__(self, handle: Callable[[], Handle]) -> None:
        self._handle = handle

    async def entity(
        self,
        name: str,
        *,
        type: trivector.EntityType | None = None,  # noqa: A002
    ) -> types.GraphEntity | None:
        """Return the entity of that name, in any spelling; None where there is none.

        Where entities of several types share the name, it is the one mentioned most; ``type`` asks
        for one type, ``entities`` for all of them.
        """
        entities = await self.entities(name, type=type)
        return entities[0] if entities else None

    async def entities(
        self,
        name: str,
        *,
        type: trivector.EntityType | None = None,  # noqa: A002
    ) -> tuple[types.GraphEntity, ...]:
        """Return all entities of that name, one per type, most mentioned first."""
        from hiermem.extraction import plan

        return plan.entities_named(await self._named(name, type), type)

    async def neighbours(
        self,
        name: str,
        *,
        type: trivector.EntityType | None = None,  # noqa: A002
    ) -> tuple[types.Neighbour, ...]:
        """Return what the entity of that name is related to, in both directions, heaviest first."""
        from hiermem.extraction import plan

        return plan.neighbours_of(await self._named(name, type), type)

    async def mentions(
        self,
        name: str,
        *,
        type: trivector.EntityType | None = None,  # noqa: A002
    ) -> tuple[types.Mention, ...]:
        """Return the places where the entity was mentioned: session, chunk and messages."""
        from hiermem.extraction import plan

        return plan.mentions_of(await self._named(name, type), type)

    async def _named(self, name: str, type_: trivector.EntityType | None) -> Sequence[Named]:
        from hiermem.extraction import plan, reduce

        if type_ is not None and type_ not in trivector.ENTITY_TYPES:
            raise UsageError(f"type is {type_!r}; use one of {', '.join(trivector.ENTITY_TYPES)}")
        wanted = reduce.normalise(check_name(name, what="name of an entity"))
        records = await self._handle().store.records(plan.ENTITY, key=wanted, limit=_SESSIONS)
        return [plan.read_name_record(record.scope, record.body) for record in records]


async def tri_vector(handle: Handle, session_id: str) -> types.TriVector | None:
    """Return the session's newest stored result, or None where it was never extracted."""
    from hiermem.extraction import plan

    await handle.record_or_new(session_id)
    for record in await handle.store.records(plan.TRIVECTOR, scope=session_id):
        return plan.read_result(record.body)
    return None
