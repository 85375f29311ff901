"""Decides what the state of a session's fold holds: all that an append needs of earlier messages.

The state is one small JSON text. Its growing parts, threads and open groups, stay packed until they
are read: an append unpacks one thread, the seal of a window one group. The size is bounded: a
thread takes a constant number of figures and is forgotten once it has been silent for twice the
idle limit, an open group has at most ``fan_in`` children, and levels grow as log n.

The state holds only what the next append needs; it repeats nothing that can be read from the log.
The rules are applied by ``hiermem.tree.fold``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple

from hiermem.config import HierarchyConfig
from hiermem.errors import StoreCorruptError
from hiermem.tree.levels import Root, pack, unpack
from hiermem.tree.stored import check_types, read_part
from hiermem.tree.turns import Turns
from hiermem.tree.windows import Window, moment
from hiermem.types import Position, SizeUnit
from hiermem.types.brief import Brief

#: The format of the JSON; another number is another format.
_VERSION = 2
#: The end of a packed strand whose window has segments. A quote inside a name is escaped.
_OPEN: Final = re.compile(r'\]\],-?\d+,\d+,(?:true|false),(?:true|false)\]\]"\]')
_encode: Callable[[Any], str] = json.JSONEncoder(separators=(",", ":")).encode


class Strand(NamedTuple):
    """The state of one thread: its end, and its open window."""

    turns: Turns = Turns()
    window: Window = Window()

    def pack(self) -> str:
        """Write it as JSON."""
        return _encode((self.turns, self.window))

    @classmethod
    def unpack(cls, text: str) -> Strand:
        """Read what ``pack`` wrote; raises StoreCorruptError for any other text."""
        return read_part(text, cls._of)

    @classmethod
    def _of(cls, row: Sequence[Any]) -> Strand:
        turns, window = row
        return cls(Turns.unpack(turns), Window.unpack(window))


class Opening(NamedTuple):
    """Where the messages of a thread begin that are in no sealed window.

    It is at message ``begin``, with the state ``window`` of the empty window.
    """

    begin: int
    window: Window = Window()


@dataclass(frozen=True, slots=True)
class OpenWindow(Brief):
    """The open window of a thread, as data: the content of the thread's next L1 so far.

    The window begins at ``begin`` and ends with message ``last_index``, the last of its thread.
    ``linked`` is True where the window shares a message or an exchange group with the sealed window
    before it in its thread.
    """

    thread: str
    begin: Position
    last_index: int
    messages: int
    size: int
    tokens: int
    linked: bool
    due: bool
    first_at: datetime
    last_at: datetime
    strand: Strand = field(repr=False)

    @classmethod
    def of(cls, thread: str, strand: Strand) -> OpenWindow | None:
        """Return the open window of ``thread`` from its state; None where no window is open."""
        window = strand.window
        content = window.content
        if not content.messages:
            return None
        return cls(
            thread=thread,
            begin=Position(content.begin, window.char),
            last_index=content.last,
            messages=content.messages,
            size=content.size,
            tokens=content.tokens,
            linked=window.linked,
            due=window.due,
            first_at=moment(content.first_at),
            last_at=moment(window.last_at),
            strand=strand,
        )


@dataclass(frozen=True, slots=True)
class SessionState:
    """The state of a session's fold.

    ``ordinals`` is the number of sealed nodes of level 1, 2, …; ``groups`` the open groups of level
    2, 3, … packed; ``threads`` gives for each thread the index of its last message and its packed
    ``Strand``.
    """

    next_index: int = 0
    closed: bool = False
    ordinals: tuple[int, ...] = ()
    groups: tuple[str, ...] = ()
    threads: Mapping[str, tuple[int, str]] = field(default_factory=dict)

    def to_json(self) -> str:
        """Write it as JSON, threads in the order in which they first spoke."""
        return _encode(
            [_VERSION, self.next_index, self.closed, self.ordinals, self.groups, {**self.threads}]
        )

    @classmethod
    def from_json(cls, text: str) -> SessionState:
        """Read what ``to_json`` wrote; "" is the state of a session without messages.

        Raises StoreCorruptError where it is neither.
        """
        return read_part(text, cls._of) if text else cls()

    @classmethod
    def _of(cls, row: Sequence[Any]) -> SessionState:
        version, next_index, closed, ordinals, groups, threads = row
        if version != _VERSION:
            raise ValueError
        kept = {thread: (last, packed) for thread, (last, packed) in threads.items()}
        check_types(next_index, *ordinals, *(last for last, _ in kept.values()), kind=int)
        check_types(*groups, *(packed for _, packed in kept.values()), kind=str)
        check_types(closed, kind=bool)
        return cls(next_index, closed, tuple(ordinals), tuple(groups), kept)

    def next_ordinal(self, level: int) -> int:
        """Return the number of sealed nodes of ``level``, which is the ordinal of the next."""
        return self.ordinals[level - 1] if level <= len(self.ordinals) else 0

    def group(self, level: int) -> tuple[Root, ...]:
        """Return the children of the open group of ``level``, 2 or more, in order."""
        return tuple(unpack(self.groups[level - 2])) if level - 2 < len(self.groups) else ()

    def roots(self) -> tuple[Root, ...]:
        """Return all sealed nodes without a parent, in the order of their windows.

        Together they cover every sealed window exactly once, in as few nodes as there are.
        """
        return tuple(root for packed in reversed(self.groups) for root in unpack(packed))

    def strand(self, thread: str) -> Strand:
        """Return the state of ``thread``; an unknown thread has an empty one."""
        kept = self.threads.get(thread)
        return Strand.unpack(kept[1]) if kept else Strand()

    def open_windows(self) -> tuple[OpenWindow, ...]:
        """Return the open windows that are not empty, in order of their first messages."""
        windows = (OpenWindow.of(name, self.strand(name)) for name in self.threads)
        return tuple(sorted((w for w in windows if w is not None), key=lambda w: w.begin))

    def with_size(
        self, thread: str, index: int, *, size: int, tokens: int, char: int | None = None
    ) -> SessionState:
        """Return the state after an edit of a message that changed its sizes by these amounts.

        Nothing changes where the message is not in the open window of ``thread``. Bounds never
        move: the rules are applied at the next arrival. ``char`` is the new beginning of the window
        where the window begins inside that message.
        """
        kept = self.threads.get(thread)
        if kept is None:
            return self
        turns, window = Strand.unpack(kept[1])
        window = window.resized(index, size=size, tokens=tokens)
        if char is not None and window.messages and window.content.begin == index:
            window = window._replace(char=char)
        return replace(
            self, threads={**self.threads, thread: (kept[0], Strand(turns, window).pack())}
        )

    def with_root(self, now: Root) -> SessionState | None:
        """Return the state with ``now`` instead of the root of its id; None without such a root."""
        for place, packed in enumerate(self.groups):
            group = unpack(packed)
            for at, root in enumerate(group):
                if root.id == now.id:
                    text = pack([*group[:at], now, *group[at + 1 :]])
                    groups = (*self.groups[:place], text, *self.groups[place + 1 :])
                    return replace(self, groups=groups)
        return None

    def rewound(self, before: SizeUnit, after: SizeUnit) -> tuple[SessionState, dict[str, Opening]]:
        """Return the state at the beginning of what is open, and the openings by thread.

        From there the messages of open windows can be folded again, under other rules. Sealed nodes
        keep the unit they were sealed in. Of what a thread said before its open window only the
        given-up calls are known.
        """
        openings: dict[str, Opening] = {}
        threads = dict(self.threads)
        for thread, (_, packed) in self.threads.items():
            turns, window = Strand.unpack(packed)
            if window.segments:
                begin = window.segments[0].begin
                opening = Window(char=window.char, linked=window.linked)
                openings[thread] = Opening(begin, opening)
                threads[thread] = (begin - 1, Strand(Turns(late=turns.late)).pack())
        groups = self.groups
        if before != after:
            groups = tuple(
                pack([replace(root, unit=root.unit or before) for root in unpack(packed)])
                for packed in groups
            )
        start = min((opening.begin for opening in openings.values()), default=self.next_index)
        return replace(self, next_index=start, groups=groups, threads=threads), openings


def has_open_window(text: str) -> bool:
    """Return whether the state ``text`` has open windows, without unpacking it.

    Every append asks this, and unpacking would cost several times as much.
    """
    return _OPEN.search(text) is not None


@lru_cache(maxsize=64)
def config_from(text: str) -> HierarchyConfig:
    """Read a stored configuration; the same text returns the same object.

    Raises StoreCorruptError where hiermem did not write the text; the error holds nothing of it.
    """
    try:
        # With defaults any object would be a configuration; a stored one names its fields.
        given = json.loads(text)
        whole = isinstance(given, dict) and given.keys() >= {"unit", "target", "levels"}
        config = HierarchyConfig.from_json(text) if whole else None
    except (ValueError, RecursionError):
        config = None
    if config is None:
        raise StoreCorruptError(
            "a session's configuration is not what hiermem wrote; the store is damaged"
        )
    return config
