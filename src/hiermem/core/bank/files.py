"""Decides what an answer makes of the bank's files, and which of it is not taken.

The one rule: a note goes in whole or not at all. Where what an answer makes of one file is not
taken, neither is what it makes of the others that took in the same notes, and those notes stay
live.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field

from hiermem.bank import FileChange, Note

__all__ = ["Applied", "diff"]


@dataclass(frozen=True, slots=True)
class Applied:
    """What an answer comes to.

    ``texts`` are those of the files that it changes. ``consumed`` are the notes that go in,
    ``kept`` those that stay live because of what ``failed`` says ("file: reason").
    """

    texts: Mapping[str, str]
    synthesis: str
    consumed: tuple[Note, ...]
    kept: tuple[Note, ...] = ()
    created: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    changes: tuple[FileChange, ...] = field(default=())
    failed: tuple[str, ...] = ()

    @property
    def lines_removed(self) -> int:
        """Give how many lines are nowhere in the bank any more."""
        return sum(each.lines_removed for each in self.changes)


def diff(name: str, before: str, after: str) -> str:
    """Give the unified diff of one file, "" where nothing changed."""
    lines = difflib.unified_diff(
        before.splitlines(keepends=True),
        after.splitlines(keepends=True),
        f"a/{name}" if before else "/dev/null",
        f"b/{name}" if after else "/dev/null",
    )
    return "".join(lines)
