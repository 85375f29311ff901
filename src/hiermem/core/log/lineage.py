"""Finds which sessions share messages: forks, forks of forks, and the sessions they came from.

A fork shares with its source exactly the messages before the index at which it was forked. An index
is therefore followed up and down the lineage for as long as it is below that point.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from hiermem.types import SessionRecord
from hiermem.types.transaction import Asking, NeedForks, NeedSession, SessionNeed


@dataclass(frozen=True, slots=True)
class Family:
    """The sessions that hold some of the requested messages, with their indices.

    The session that was asked about comes first. ``children`` are its direct forks.
    """

    records: dict[str, SessionRecord]
    reach: dict[str, set[int]]
    children: tuple[SessionRecord, ...] = ()

    @classmethod
    def of(cls, record: SessionRecord, indices: Iterable[int], *, upwards: bool) -> Asking[Family]:
        """Follow the indices into forks and forks of forks; ``upwards`` into sources too."""
        records = {record.id: record}
        reach: dict[str, set[int]] = {record.id: set(indices)}
        waiting = [(record.id, set(reach[record.id]))]
        children: tuple[SessionRecord, ...] = ()
        while waiting:
            one, held = waiting.pop(0)
            here = records[one]
            above = here.forked_from if upwards else None
            asked: list[SessionNeed] = [(one, NeedForks())]
            asked += [(above, NeedSession())] if above is not None else []
            forks, *sources = yield tuple(asked)
            kin: list[tuple[SessionRecord, int]] = [(fork, fork.forked_at) for fork in forks]
            if one == record.id:
                children = tuple(forks)
            kin += [(source, here.forked_at) for source in sources if source is not None]
            for other, shared in kin:
                new = {index for index in held if index < shared} - reach.get(other.id, set())
                records.setdefault(other.id, other)
                if new:
                    reach.setdefault(other.id, set()).update(new)
                    waiting.append((other.id, new))
        return cls(records, reach, children)

    def without(self, record: SessionRecord) -> tuple[SessionRecord, ...]:
        """Return the forks of ``record``, which is about to be deleted, with their new parents.

        The fork that shares most becomes the parent of the others, so that all go on sharing what
        they shared.
        """
        if not self.children:
            return ()
        heir = max(self.children, key=lambda child: child.forked_at)
        others = [child for child in self.children if child.id != heir.id]
        shared = min(heir.forked_at, record.forked_at)
        return (
            replace(heir, forked_from=record.forked_from, forked_at=shared),
            *(replace(child, forked_from=heir.id) for child in others),
        )
