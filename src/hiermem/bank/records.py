"""Decides how a space is stored as records, and whether its records are consistent.

| kind | key | body |
|---|---|---|
| ``space`` | the space's name | the rules and when the space was made |
| ``note-sequence`` | | the number of the newest note to arrive |
| ``note`` | time, then arrival | a live note |
| ``consumed`` | the same | the note, the revision that consumed it, and its files or the reason |
| ``blocked`` | the same | how often a live note was left out and failed alone; why it is blocked |
| ``bank`` | file name | the file's text |
| ``bank-line`` | hash of a line | the messages that it comes from (``lines``) |
| ``synthesis`` | | the synthesis |
| ``meta`` | | the space's figures |
| ``bank-revision`` | number | what changed in it, and the texts that it wrote |
| ``bank-claim`` | | who consolidates, until when |
| ``bank-export`` | folder or URL | where the bank was exported to |

All have the scope ``SPACE_SCOPE``, which no session can have: a record whose scope is a session's
id is deleted with that session. All kinds but the first include the space's name (``kind_of``).

A record reads back as it was written, or reading raises StoreCorruptError. ``change`` decides which
writes make one change. ``faults`` trusts nothing that can be worked out again: it compares the
figures and the files with the history, and the consumed notes with the live ones.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from hiermem.bank.rules import Rules, read_rules
from hiermem.errors import StoreCorruptError
from hiermem.types.bank import BankRevision, LineOrigin, Note, Origins, RevisionKind, SpaceMeta
from hiermem.types.brief import FrozenDict
from hiermem.types.transaction import Record, RecordWrite

T = TypeVar("T")
#: The scope of all records of spaces; no session's id is empty.
SPACE_SCOPE: Final = ""
SPACE: Final = "space"
SEQUENCE: Final = "note-sequence"
NOTE: Final = "note"
CONSUMED: Final = "consumed"
BLOCKED: Final = "blocked"
BANK: Final = "bank"
LINE: Final = "bank-line"
SYNTHESIS: Final = "synthesis"
META: Final = "meta"
REVISION: Final = "bank-revision"
CLAIM: Final = "bank-claim"
EXPORT: Final = "bank-export"
#: Why a note is among the consumed ones that a space was told to forget.
FORGOTTEN: Final = "forgotten"
_ARRIVAL: Final = re.compile(r"Z-(\d{10,19})-[0-9a-f]+\Z")
#: All kinds that include the space's name.
KINDS: Final = (
    SEQUENCE, NOTE, CONSUMED, BLOCKED, BANK, LINE, SYNTHESIS, META, REVISION, CLAIM, EXPORT,
)  # fmt: skip
#: The kinds of record that a check reads beside the figures, in this order, so that it misses no
#: note that arrives meanwhile.
CHECKED: Final = (
    SEQUENCE, NOTE, BLOCKED, CONSUMED, BANK, SYNTHESIS, REVISION,
)  # fmt: skip


def kind_of(kind: str, space: str) -> str:
    """Return the kind under which a space's records are stored.

    >>> kind_of(NOTE, "project-x")
    'note/project-x'
    """
    return f"{kind}/{space}"


def write_of(
    kind: str, space: str, key: str = "", body: str | None = None, *, expected: int | None = None
) -> RecordWrite:
    """Return the write of one record of a space; without a body it deletes the record."""
    return RecordWrite(kind_of(kind, space), SPACE_SCOPE, key, body, expected)


def subject_of(space: str) -> str:
    """Return the name under which a space's runs and calls are journalled.

    >>> subject_of("project-x")
    'space:project-x'
    """
    return f"space:{space}"


@dataclass(frozen=True, slots=True)
class BankState:
    """The current bank of a space, with the versions that a change of it expects.

    ``texts`` are those of the files by name, sorted by name. A version of 0 stands for a record
    that does not exist. ``origins`` say where the lines of a space that learns come from, those of
    earlier revisions too.
    """

    space: str
    rules: Rules
    meta: SpaceMeta = field(default_factory=SpaceMeta)
    meta_version: int = 0
    texts: Mapping[str, str] = field(default_factory=dict[str, str])
    versions: Mapping[str, int] = field(default_factory=dict[str, int])
    synthesis: str = ""
    synthesis_version: int = 0
    origins: Origins = field(default_factory=dict[str, LineOrigin])


def read_space(record: Record) -> tuple[Rules, datetime]:
    """Return the rules of a space and when it was made."""

    def read(value: dict[str, Any]) -> tuple[Rules, datetime]:
        rules = replace(read_rules(value["rules"]), person=value["person"], learn=value["learn"])
        return rules, datetime.fromisoformat(value["created"])

    return read_body(record, read)


def identity(record: Record) -> str:
    """Return a hash that tells a space from all others, and reveals nothing of it.

    It differs even from that of an erased space of the same name, because the record holds a random
    mark and the time when the space was made.
    """
    return hashlib.sha256(record.body.encode("utf-8")).hexdigest()[:32]


def read_state(space: str, rules: Rules, records: Mapping[str, Sequence[Record]]) -> BankState:
    """Return a space's bank, read from its records of kind ``bank``, ``synthesis`` and ``meta``."""
    meta = records[META][0] if records[META] else None
    synthesis = records[SYNTHESIS][0] if records[SYNTHESIS] else None
    files = sorted(records[BANK], key=lambda file: file.key)
    return BankState(
        space,
        rules,
        meta=read_meta(meta),
        meta_version=meta.version if meta else 0,
        texts={file.key: file.body for file in files},
        versions={file.key: file.version for file in files},
        synthesis=synthesis.body if synthesis else "",
        synthesis_version=synthesis.version if synthesis else 0,
        origins=read_origins(records.get(LINE, ())),
    )


def read_origins(lines: Iterable[Record]) -> dict[str, LineOrigin]:
    """Return where the lines of a space that learns come from."""
    return {line.key: read_body(line, _origin) for line in lines}


def read_meta(record: Record | None) -> SpaceMeta:
    """Return a space's figures; ``record`` is the one of kind ``meta``, None before any change."""
    return read_body(record, _meta) if record else SpaceMeta()


def live_notes(notes: Iterable[Record], blocked: Iterable[Record]) -> list[Note]:
    """Return the live notes, oldest first, including blocked ones."""
    return with_trouble(map(read_note, notes), blocked)


def with_trouble(notes: Iterable[Note], blocked: Iterable[Record]) -> list[Note]:
    """Return live notes with how often each was left out and failed, and why it is blocked."""
    troubled = {each.key: each for each in blocked}
    return [
        read_body(troubled[note.key], partial(_with_trouble, note))
        if note.key in troubled
        else note
        for note in notes
    ]


def arrivals(counter: Record | None) -> int:
    """Return how many notes ever arrived; ``counter`` is the record of kind ``note-sequence``."""
    if counter is None:
        return 0
    if not counter.body.isdecimal():
        raise _damaged(counter)
    return int(counter.body)


def arrival_of(key: str) -> int | None:
    """Return the number of a note's arrival, from its key; None for any other key.

    >>> arrival_of("2026-01-02T00:00:00.000000Z-0000000007-3fa2c1")
    7
    """
    match = _ARRIVAL.search(key)
    return int(match[1]) if match else None


def read_revisions(records: Iterable[Record]) -> list[BankRevision]:
    """Return the bank's revisions, oldest first."""
    return [read_body(record, _revision) for record in records]


def sound_revisions(records: Iterable[Record]) -> Iterator[BankRevision]:
    """Yield the revisions whose records are not damaged, for an erasure that must not fail."""
    for record in records:
        with suppress(StoreCorruptError):
            yield read_body(record, _revision)


#: The texts that one revision changed, None for a removed file, and its synthesis.
RevisionTexts: TypeAlias = tuple[Mapping[str, str | None], str]


def read_texts(record: Record) -> RevisionTexts:
    """Return the texts of a revision, from its record of kind ``bank-revision``."""

    def read(value: dict[str, Any]) -> RevisionTexts:
        texts = {name: text and str(text) for name, text in value["texts"].items()}
        return texts, str(value["synthesis"])

    return read_body(record, read)


def texts_at(records: Iterable[Record], number: int) -> tuple[dict[str, str], str]:
    """Return the texts of the files, and the synthesis, as of revision ``number``.

    ``records`` are all of kind ``bank-revision``, in order; revision 0 is the empty bank.
    """
    files: dict[str, str | None] = {}
    synthesis = ""
    for record in records:
        if record.key > number_key(number):
            break
        texts, synthesis = read_texts(record)
        files |= texts
    return {name: text for name, text in files.items() if text is not None}, synthesis


def new_space(space: str, rules: Rules, *, now: datetime, mark: str) -> RecordWrite:
    """Return the write that makes a space; it fails if the space exists.

    ``mark`` is random. It tells a space from an erased one of the same name.
    """
    value = {"rules": rules.text, "person": rules.person, "learn": rules.learn}
    body = _written({**value, "created": _time(now), "mark": mark})
    return RecordWrite(SPACE, SPACE_SCOPE, space, body, expected=0)


def note_key(timestamp: datetime, sequence: int, mark: str) -> str:
    """Return the key of a note: its time in UTC, the number of its arrival, a random mark.

    The mark identifies the note if it is unknown whether its write took effect.

    >>> from datetime import datetime, timezone
    >>> note_key(datetime(2026, 1, 2, tzinfo=timezone.utc), 7, "3fa2c1")
    '2026-01-02T00:00:00.000000Z-0000000007-3fa2c1'
    """
    time = timestamp.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00")
    return f"{time}Z-{sequence:010d}-{mark}"


def new_note(
    space: str, draft: Note, *, counter: Record | None, mark: str
) -> tuple[Note, tuple[RecordWrite, ...]]:
    """Return ``draft`` with its key, and the writes that add it.

    ``counter`` is the record of kind ``note-sequence``, None before the first note; ``mark`` is six
    random hexadecimal digits. The writes fail if another note arrived meanwhile; then call this
    again. The note's sources are recorded separately, by ``sources``.
    """
    sequence = arrivals(counter) + 1
    note = replace(draft, key=note_key(draft.timestamp, sequence, mark))
    arrived = counter.version if counter else 0
    return note, (
        write_of(SEQUENCE, space, body=str(sequence), expected=arrived),
        write_of(NOTE, space, note.key, note_body(note), expected=0),
    )


def number_key(number: int) -> str:
    """Return the key of a revision or consolidation; keys sort as the numbers do."""
    return f"{number:010d}"


def note_body(note: Note) -> str:
    """Write a note as a record's body."""
    value = {
        "text": note.text,
        "timestamp": _time(note.timestamp),
        "agent": note.agent,
        "category": note.category,
        "tags": list(note.tags),
        "consolidation": note.consolidation,
        "files": list(note.files),
        "dropped": note.dropped_for,
    }
    return _written(value)


def forgotten(note: Note) -> Note:
    """Return what is kept of a note that was forgotten: that it arrived, and when."""
    kept = Note(note.key, "", note.timestamp, state="consumed", dropped_for=FORGOTTEN)
    return replace(kept, consolidation=note.consolidation or 0)


def trouble_body(note: Note) -> str:
    """Write how often a live note was left out and failed alone, and why it is blocked."""
    return _written(
        {"unplaced": note.unplaced, "failures": note.failures, "blocked": note.blocked_for}
    )


def meta_body(meta: SpaceMeta) -> str:
    """Write a space's figures as a record's body."""
    last = meta.last_consolidation
    return _written(asdict(meta) | {"last_consolidation": _time(last) if last else None})


def origin_write(space: str, line: str, origin: LineOrigin | None) -> RecordWrite:
    """Return the write of where a line comes from; None removes it."""
    body = None if origin is None else _written(asdict(origin))
    return write_of(LINE, space, line, body)


def revision_body(
    revision: BankRevision, *, texts: Mapping[str, str | None], synthesis: str
) -> str:
    """Write a revision as a record's body; ``texts`` are those of the files that changed."""
    value = {
        "number": revision.number,
        "kind": revision.kind,
        "at": _time(revision.at),
        "run": revision.run_id,
        "model": revision.model,
        "notes": list(revision.notes),
        "files": dict(revision.files),
        "to": revision.to,
        "restored": list(revision.restored),
        "texts": dict(texts),
        "synthesis": synthesis,
    }
    return _written(value)


def without_lines(
    record: Record, strip: Callable[[str], str], synthesis: str | None = None
) -> str | None:
    """Return the body of a revision whose texts are stripped; None if that changes nothing.

    The synthesis is stripped too, unless another one is given.
    """

    def stripped(value: dict[str, Any]) -> str | None:
        texts = {name: text and strip(text) for name, text in value["texts"].items()}
        left = strip(value["synthesis"]) if synthesis is None else synthesis
        if (texts, left) == (value["texts"], value["synthesis"]):
            return None
        return _written({**value, "texts": texts, "synthesis": left})

    return read_body(record, stripped)


def faults(space: str, header: Record, records: Mapping[str, Sequence[Record]]) -> Iterator[str]:
    """Yield each fault; ``records`` are all records of the space, by kind, read in one state."""
    try:
        rules, _ = read_space(header)
        state = read_state(space, rules, records)
        live = live_notes(records[NOTE], records[BLOCKED])
        consumed = [*map(read_note, records[CONSUMED])]
        revisions = read_revisions(records[REVISION])
        texts = texts_at(records[REVISION], len(revisions))
        last_arrival = arrivals(next(iter(records[SEQUENCE]), None))
    except StoreCorruptError as error:
        yield str(error)
        return
    # A consumed note in the history may be gone, because its retention is over.
    entered = Counter(key for revision in revisions for key in revision.notes)
    entered.subtract(key for revision in revisions for key in revision.restored)
    entered = +entered
    waiting = {note.key for note in live}
    yield from (f"note {key} went in more than once" for key, count in entered.items() if count > 1)
    yield from (f"note {key} went in and still waits" for key in sorted(waiting & entered.keys()))
    arrived_notes = set(map(arrival_of, {*waiting, *entered, *(note.key for note in consumed)}))
    for number in range(1, last_arrival + 1):
        if number not in arrived_notes:
            yield f"note number {number} arrived, and is neither live nor consumed"
    meta = state.meta
    stated = (meta.consolidations, meta.notes_processed, meta.revision)
    notes = sum(len(revision.notes) - len(revision.restored) for revision in revisions)
    consolidations = sum(revision.kind == "consolidation" for revision in revisions)
    summed = (consolidations, notes, len(revisions))
    if stated != summed:
        yield f"its figures say {stated}, its records {summed}"
    if texts != (state.texts, state.synthesis):
        yield "the files, or the synthesis, are not those that its history gives"


def read_note(record: Record) -> Note:
    """Return a note, from its record of kind ``note`` or ``consumed``."""

    def read(value: dict[str, Any]) -> Note:
        consolidation = value["consolidation"]
        return Note(
            key=record.key,
            text=str(value["text"]),
            timestamp=datetime.fromisoformat(value["timestamp"]),
            agent=str(value["agent"]),
            category=str(value["category"]),
            tags=tuple(map(str, value["tags"])),
            state="live" if consolidation is None else "consumed",
            consolidation=consolidation if consolidation is None else int(consolidation),
            files=tuple(map(str, value["files"])),
            dropped_for=str(value["dropped"]),
        )

    return read_body(record, read)


def _with_trouble(note: Note, value: dict[str, Any]) -> Note:
    """Return a live note with what its record of kind ``blocked`` says."""
    reason, failures = str(value["blocked"]), int(value["failures"])
    note = replace(note, unplaced=int(value["unplaced"]), failures=failures, blocked_for=reason)
    return replace(note, state="blocked" if reason else "live")


def _meta(value: dict[str, Any]) -> SpaceMeta:
    last = value["last_consolidation"]
    times: dict[str, Any] = {"last_consolidation": datetime.fromisoformat(last) if last else None}
    return SpaceMeta(**{**value, **times})


def _origin(value: dict[str, Any]) -> LineOrigin:
    return LineOrigin(value["since"], tuple((name, at, key) for name, at, key in value["sources"]))


def _revision(value: dict[str, Any]) -> BankRevision:
    kind: RevisionKind = value["kind"]
    return BankRevision(
        number=int(value["number"]),
        kind=kind,
        at=datetime.fromisoformat(value["at"]),
        run_id=str(value["run"]),
        model=str(value["model"]),
        notes=tuple(map(str, value["notes"])),
        files=FrozenDict({str(k): str(v) for k, v in value["files"].items()}),
        to=value["to"],
        restored=tuple(map(str, value["restored"])),
    )


def read_body(record: Record, read: Callable[[dict[str, Any]], T]) -> T:
    """Read a record's body with ``read``. Raises StoreCorruptError."""
    try:
        value = json.loads(record.body)
        if isinstance(value, dict):
            return read(value)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        pass
    raise _damaged(record)


def _damaged(record: Record) -> StoreCorruptError:
    return StoreCorruptError(
        f"record {record.key!r} of kind {record.kind!r} is damaged; restore a backup"
    )


def _written(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _time(when: datetime) -> str:
    return when.astimezone(UTC).isoformat()
