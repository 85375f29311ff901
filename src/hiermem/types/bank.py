"""The content of a space, and the results of consolidating it.

Agents write a ``Note``. A model receives a ``BankText`` to consolidate, as data. A user receives
``ConsolidationResult``, ``BankRevision``, ``SpaceMeta``, ``ExportReport`` and ``LoadReport``.

The values are frozen; ``hiermem.bank`` decides what happens to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

from hiermem.types.brief import Brief, FrozenDict
from hiermem.types.transaction import NO_COST, Cost

NoteState: TypeAlias = Literal["live", "consumed", "blocked"]
RevisionKind: TypeAlias = Literal["consolidation", "rollback", "load", "erasure"]
ConsolidationStatus: TypeAlias = Literal["ok", "nothing_to_do", "partial", "busy", "error"]
_NO_METRICS: Mapping[str, int | float] = FrozenDict()


@dataclass(frozen=True, slots=True)
class Note(Brief):
    """One note of a space.

    ``key`` names it and sorts by time, then arrival. ``sources`` are the (session id, message
    index) pairs that it came from, save erased ones. ``consolidation`` is the number of the
    revision that consumed it, None while it is live; then ``files`` took it in, or it was dropped,
    and ``dropped_for`` is the model's reason. While it is live, ``unplaced`` counts how often an
    answer left it out, and ``failures`` how often it failed alone with a model that could take in
    other notes. A note that is a message of few words has in ``context`` what was said before it.
    """

    key: str
    text: str
    timestamp: datetime
    agent: str = ""
    category: str = ""
    tags: tuple[str, ...] = ()
    sources: tuple[tuple[str, int], ...] = ()
    state: NoteState = "live"
    consolidation: int | None = None
    files: tuple[str, ...] = ()
    dropped_for: str = ""
    unplaced: int = 0
    failures: int = 0
    blocked_for: str = ""
    context: str = ""


#: A message as the source of a line: its session, its index, and the key of the note that it was.
Source: TypeAlias = tuple[str, int, str]


@dataclass(frozen=True, slots=True)
class LineOrigin:
    """Where a line of the bank comes from, and the day of the newest of its messages."""

    since: str
    sources: tuple[Source, ...]


#: The origins of lines, by the hashes of what they say.
Origins: TypeAlias = Mapping[str, LineOrigin]


@dataclass(frozen=True, slots=True)
class BankText:
    """What a model receives to consolidate, as data beside the rendered prompt.

    ``files`` are the (name, text) pairs of the files; ``missing`` are those that the rules name and
    that do not exist yet, with the text that each begins with. ``learning`` is what holds besides
    the rules in a space that learns, "" in any other.
    """

    rules: str
    synthesis: str
    files: tuple[tuple[str, str], ...]
    missing: tuple[tuple[str, str], ...]
    notes: tuple[Note, ...]
    learning: str = ""


@dataclass(frozen=True, slots=True)
class FileChange(Brief):
    """The change of one bank file.

    ``lines_removed`` counts its lines that are nowhere in the bank any more; ``diff`` is a unified
    diff.
    """

    name: str
    change: Literal["created", "updated", "removed"]
    lines_removed: int = 0
    diff: str = ""


@dataclass(frozen=True, slots=True)
class BlockedNote(Brief):
    """A live note that is blocked: it cannot fit, or it failed alone too often."""

    key: str
    agent: str
    reason: Literal["too_large", "failed"]


@dataclass(frozen=True, slots=True)
class DroppedNote(Brief):
    """A note that an answer dropped: its key, its author, and the model's reason."""

    note: str
    agent: str
    reason: str


@dataclass(frozen=True, slots=True)
class ConsolidationResult(Brief):
    """The result of a consolidation.

    ``notes_processed`` are consumed, and ``dropped`` are those of them that went into no file.
    ``notes_remaining`` are live and go into the next consolidation; ``unplaced`` are the keys of
    those that a model was shown and left out. ``blocked`` notes are live and wait for ``unblock``.
    ``failed`` says which changes were not made, as "file: reason"; their notes are live.
    ``spent`` is what the calls took, and ``metrics`` has the published names. With ``dry_run``
    nothing was written.
    """

    space: str
    status: ConsolidationStatus
    message: str
    notes_processed: int = 0
    notes_remaining: int = 0
    files_created: tuple[str, ...] = ()
    files_updated: tuple[str, ...] = ()
    files_unchanged: tuple[str, ...] = ()
    lines_removed: int = 0
    changes: tuple[FileChange, ...] = ()
    dropped: tuple[DroppedNote, ...] = ()
    unplaced: tuple[str, ...] = ()
    blocked: tuple[BlockedNote, ...] = ()
    failed: tuple[str, ...] = ()
    revision: int = 0
    dry_run: bool = False
    run_id: str = ""
    spent: Cost = NO_COST
    metrics: Mapping[str, int | float] = field(default_factory=lambda: _NO_METRICS)

    @property
    def diff(self) -> str:
        """Return the unified diffs of all changed files, in the order of their names."""
        return "".join(each.diff for each in self.changes)


@dataclass(frozen=True, slots=True)
class BankRevision(Brief):
    """One state of the bank. ``notes`` are the keys of the notes that it consumed.

    ``files`` maps the names of the files that it changed to "created", "updated" or "removed".
    ``to`` is the revision to which a rollback returned, and ``restored`` are the keys of the notes
    that it made live again.
    """

    number: int
    kind: RevisionKind
    at: datetime
    run_id: str = ""
    model: str = ""
    notes: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=FrozenDict[str, str])
    to: int | None = None
    restored: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SpaceMeta(Brief):
    """The figures of a space. ``revision`` is the number of the bank's newest state, 0 for none.

    ``consolidations`` counts committed model answers, ``notes_processed`` the notes that they
    consumed and no rollback restored. ``batch_notes`` is the most notes of the next request, halved
    by a failed answer and doubled by a good one; None is no limit. ``model`` is the model that is
    known to take notes in, "" if none is, and ``failed_alone`` the one note that failed alone since
    it last did.
    """

    last_consolidation: datetime | None = None
    consolidations: int = 0
    notes_processed: int = 0
    revision: int = 0
    batch_notes: int | None = None
    model: str = ""
    failed_alone: str = ""


@dataclass(frozen=True, slots=True)
class ExportReport(Brief):
    """What an export did in ``folder``, a path or a URL, by the names of the bank's files.

    If the place holds a later revision of the space already, ``superseded_by`` is its number and
    nothing was written.
    """

    folder: str
    revision: int
    written: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    superseded_by: int | None = None


@dataclass(frozen=True, slots=True)
class LoadReport(Brief):
    """What a load took from ``folder``, a path or a URL, by the names of files.

    ``revision`` is the new revision, None if nothing changed.
    """

    folder: str
    revision: int | None = None
    created: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    diff: str = ""


#: Where a line of what is known stands.
KnownPlace: TypeAlias = Literal["wish", "file", "note", "conversation"]


@dataclass(frozen=True, slots=True)
class KnownLine(Brief):
    """A line of what is known in a space.

    ``place`` says what it is: a standing wish, a line of the bank's files, a live note, or words of
    a conversation. ``since`` is when it was said or noted, or since when it holds; None for a line
    that was written by hand. ``was`` is what held before, "" if nothing is known of that.
    ``sources`` are the messages, as pairs of a session's id and an index; a line of a file without
    any was written by hand, or from notes.
    """

    _brief = "place since sources text"

    text: str
    place: KnownPlace
    since: datetime | None = None
    was: str = ""
    sources: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ForgetReport(Brief):
    """What a space forgot, or would forget.

    ``gone`` are the messages, notes and lines that held all words, whole; what else they said went
    with them. ``unproven`` are those that share some of the words, or that another author said:
    they stay, and may say the same in other words. ``exports`` are the places of exports and
    of copies of the store, which an erasure does not reach. ``scrubbed`` says whether the store's
    bytes are clean.
    """

    _brief = "gone unproven scrubbed dry_run"

    gone: tuple[KnownLine, ...] = ()
    unproven: tuple[KnownLine, ...] = ()
    exports: tuple[str, ...] = ()
    scrubbed: bool = False
    dry_run: bool = False
