"""Which sessions share messages: forks, forks of forks, and what they were forked from.

The one rule: a session shares with the one that it was forked from exactly the messages before the
index that it was forked at, so an index is followed upwards and downwards as long as it is shared.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hiermem.types import SessionRecord
from hiermem.types.transaction import Need, NeedForks, NeedSession


@dataclass(frozen=True, slots=True)
class Family:
    """The sessions that hold some of the messages asked for, and which; the asked one comes first.

    ``children`` are the direct forks of the one that was asked for.
    """

    records: dict[str, SessionRecord]
    reach: dict[str, set[int]]
    children: tuple[SessionRecord, ...] = ()

    @classmethod
    def around(
        cls, record: SessionRecord, indices: Iterable[int]
    ) -> Generator[tuple[str, Need], Any, Family]:
        """Follow the indices in both directions."""
        return (yield from cls._follow(record, indices, upwards=True))

    @classmethod
    def below(
        cls, record: SessionRecord, indices: Iterable[int]
    ) -> Generator[tuple[str, Need], Any, Family]:
        """Follow the indices into forks and forks of forks."""
        return (yield from cls._follow(record, indices, upwards=False))

    @classmethod
    def _follow(
        cls, record: SessionRecord, indices: Iterable[int], *, upwards: bool
    ) -> Generator[tuple[str, Need], Any, Family]:
        records = {record.id: record}
        reach: dict[str, set[int]] = {record.id: set(indices)}
        waiting = [(record.id, set(reach[record.id]))]
        children: tuple[SessionRecord, ...] = ()
        while waiting:
            one, held = waiting.pop(0)
            here = records[one]
            kin: list[tuple[SessionRecord, int]] = []
            forks: Sequence[SessionRecord] = yield one, NeedForks()
            kin += [(fork, fork.forked_at) for fork in forks]
            if one == record.id:
                children = tuple(forks)
            if upwards and here.forked_from is not None:
                source: SessionRecord | None = yield here.forked_from, NeedSession()
                if source is not None:
                    kin.append((source, here.forked_at))
            for other, shared in kin:
                new = {index for index in held if index < shared} - reach.get(other.id, set())
                records.setdefault(other.id, other)
                if new:
                    reach.setdefault(other.id, set()).update(new)
                    waiting.append((other.id, new))
        return cls(records, reach, children)

    def without(self, record: SessionRecord) -> tuple[SessionRecord, ...]:
        """Give the forks of ``record``, who is about to go, with what they are forked from then.

        The one that shares most takes its place for the others, so that all of them go on sharing
        what they shared.
        """
        if not self.children:
            return ()
        heir = max(self.children, key=lambda child: child.forked_at)
        moved = [
            replace(
                heir,
                forked_from=record.forked_from,
                forked_at=min(heir.forked_at, record.forked_at),
            )
        ]
        moved += [
            replace(child, forked_from=heir.id) for child in self.children if child.id != heir.id
        ]
        return tuple(moved)
