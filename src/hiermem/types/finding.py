"""One finding of a check."""

from __future__ import annotations

from dataclasses import dataclass

from hiermem.types.brief import Brief


@dataclass(frozen=True, slots=True, order=True)
class Finding(Brief):
    """One promise that is not kept: which, in which session, where in it, and what is wrong."""

    promise: str
    session_id: str
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.promise}: session {self.session_id!r}, {self.where}: {self.what}"
