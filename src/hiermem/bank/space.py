"""Reads a space's notes and bank, and writes notes, loads, exports and rollbacks.

A note is durable when the call returns, and it comes after every earlier note, even if others write
at the same time. A bank is changed only under its claim. Nothing here asks a model. ``bank.change``
decides what a change consists of; ``bank.consolidate`` turns notes into files.
"""

from __future__ import annotations

import asyncio
import secrets
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, Final, TypeAlias

from hiermem import arguments
from hiermem.bank import change, exchange, folder_io, learn, lines, object_io, records, said
from hiermem.bank import sources as source_links
from hiermem.bank.exchange import BankUrl, ExchangedBank, Pointer, read_options, read_url
from hiermem.bank.files import diff
from hiermem.bank.object_io import ObjectStorage
from hiermem.bank.records import BankState, subject_of
from hiermem.bank.rules import check_file_name
from hiermem.bank.store import SpaceContext, bank_claim
from hiermem.calls.retry import shielded
from hiermem.calls.run import RecordClaim
from hiermem.config import BankPolicy
from hiermem.errors import BusyError, NotFoundError, StoreError, UsageError
from hiermem.handle import Handle
from hiermem.text.policy import MAX_CONTENT, MAX_NAME, check, check_name
from hiermem.types.bank import BankRevision, ExportReport, LoadReport, Note, NoteState, Source
from hiermem.types.transaction import Record, RecordWrite
from hiermem.types.tree import Finding

_ALL: Final = 2**31 - 1
#: How often a check reads a space again because it was written to meanwhile.
_AGAIN: Final = 4
#: How often adding a note is tried; a try fails if another note arrived first.
_TRIES: Final = 1_000
#: Tries without a pause, and then the seconds between them.
_AT_ONCE: Final = 4
_PAUSE: Final = 0.002
#: The most tags and sources of one note.
_MOST_TAGS: Final = 64
_MOST_SOURCES: Final = 1_024
_MARK_BYTES: Final = 3
#: Opens a place in object storage with its options.
OpenStorage: TypeAlias = Callable[[BankUrl, Mapping[str, str]], ObjectStorage]


async def spaces(handle: Handle) -> list[str]:
    """List the names of a tenant's spaces."""
    return [header.key for header in await _headers(handle)]


async def _headers(handle: Handle) -> list[Record]:
    return await handle.store.records(records.SPACE, scope=records.SPACE_SCOPE, limit=_ALL)


async def learning_spaces(handle: Handle, policy: BankPolicy) -> AsyncIterator[SpaceContext]:
    """Yield the spaces of a tenant that learn."""
    for header in await _headers(handle):
        if records.read_space(header)[0].learn:
            yield SpaceContext(handle, header.key, None, policy, header=header)


async def is_due(space: SpaceContext) -> bool:
    """Return whether a space has enough to learn, or has had it for a day."""
    notes = await space.waiting()
    tokens = sum(space.handle.counter.count(note.text) for note in notes)
    return said.is_due(notes, tokens, space.handle.clock())


async def ensure_exists(handle: Handle, name: str) -> None:
    """Create a space that the application named with rules; any other must exist.

    Raises NotFoundError.
    """
    await SpaceContext(handle, name, handle.spaces_to_make.get(name), BankPolicy()).rules()


async def check_spaces(handle: Handle) -> tuple[list[str], list[Finding], list[str]]:
    """Check each space; return their subjects, the findings, and why some were not checked.

    Nothing is written. If a space is being written, only findings within one of its states are
    reported.
    """
    subjects: list[str] = []
    findings: list[Finding] = []
    skipped: list[str] = []
    for name in await spaces(handle):
        subjects.append(subject_of(name))
        space = SpaceContext(handle, name, None, BankPolicy())
        header = await space.current_header()
        if header is None:
            continue
        for _ in range(_AGAIN):
            if (snapshot := await space.settled(records.CHECKED)) is not None:
                break
        else:
            skipped.append(f"space {name!r} kept changing; not checked")
            continue
        wrong = await asyncio.to_thread(list, records.faults(name, header, snapshot))
        findings += [Finding("bank", subject_of(name), "its bank", what) for what in wrong]
    return subjects, findings, skipped


async def note(
    space: SpaceContext,
    text: Any,
    *,
    agent: Any = "",
    category: Any = "",
    tags: Any = (),
    timestamp: Any = None,
    sources: Any = (),
) -> Note:
    """Add a note after all others. When this returns the note is durable.

    Raises UsageError and InvalidMessageError for the arguments, NotFoundError for the space and for
    a source that does not exist, ConflictError.
    """
    checked = check(text, what="the note", cap=MAX_CONTENT)
    if not checked.strip():
        raise UsageError("the note is empty; pass some text")
    named = arguments.names(tags, "tags")
    if len(named) > _MOST_TAGS:
        raise UsageError(f"tags has {len(named)} names; at most {_MOST_TAGS} are allowed")
    when = None if timestamp is None else arguments.moment(timestamp, "timestamp")
    draft = Note(
        "",
        checked,
        when or space.handle.clock(),
        agent=check(agent, what="agent", cap=MAX_NAME),
        category=check(category, what="category", cap=MAX_NAME),
        tags=tuple(dict.fromkeys(named)),
        sources=_sources(sources),
    )
    await space.rules()
    mark = secrets.token_hex(_MARK_BYTES)

    async def exists() -> bool:
        """Return whether a note of unknown outcome is there, live or consumed."""
        kinds = (records.NOTE, records.CONSUMED)
        return any([await space.one(kind, new.key) is not None for kind in kinds])

    async with space.note_lock:
        for tried in range(_TRIES):
            if tried:
                # If the space was erased meanwhile, the note is for the space that exists now.
                await space.rules(reread=True)
            epochs = await _epochs(space, draft.sources)
            counter = await space.one(records.SEQUENCE)
            new, writes = records.new_note(space.name, draft, counter=counter, mark=mark)
            for session_id, index in new.sources:
                writes += source_links.writes_of(session_id, (index, space.name, new.key))
            if await space.put(writes, epochs=epochs, witness=exists):
                return new
            if tried > _AT_ONCE:
                await asyncio.sleep(_PAUSE * secrets.randbelow(min(tried, 50)))
    raise StoreError(f"too many concurrent notes in space {space.name!r}; retry", retryable=True)


async def notes(space: SpaceContext, state: NoteState) -> list[Note]:
    """List notes, oldest first; blocked notes are live too."""
    arguments.one_of(state, "state", ("live", "consumed", "blocked"))
    await space.rules()
    if state == "consumed":
        noted, said = await space.consumed_notes(), await space.learnt()
    else:
        noted, (said, _) = await space.live_notes(), await space.unlearnt()
    found = sorted([*await space.with_sources(noted), *said], key=lambda note: note.key)
    return [note for note in found if state != "blocked" or note.state == "blocked"]


async def unblock(space: SpaceContext) -> int:
    """Make blocked notes eligible again; return how many there were."""
    blocked = await notes(space, "blocked")
    await space.put([records.write_of(records.BLOCKED, space.name, note.key) for note in blocked])
    return len(blocked)


def _sources(sources: Any) -> tuple[tuple[str, int], ...]:
    if isinstance(sources, (str, bytes)) or not isinstance(sources, Iterable):
        raise UsageError(
            f"sources is {type(sources).__name__}; pass pairs of session id and message index"
        )
    pairs: dict[tuple[str, int], None] = {}
    for pair in sources:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise UsageError("invalid source; pass pairs of session id and message index")
        session_id = check_name(pair[0], what="a session id of sources")
        pairs[session_id, arguments.whole(pair[1], "an index of sources")] = None
        if len(pairs) > _MOST_SOURCES:
            raise UsageError(f"sources has more than {_MOST_SOURCES:,} messages; pass fewer")
    return tuple(pairs)


async def _epochs(space: SpaceContext, sources: Sequence[tuple[str, int]]) -> dict[str, int] | None:
    """Return the epochs of the sources' sessions, so that no source can be erased unnoticed.

    Returns None without sources. Raises NotFoundError.
    """
    epochs: dict[str, int] = {}
    for session_id, index in sources:
        session = await space.handle.store.session(session_id)
        if session is None:
            raise NotFoundError(f"source session {session_id!r} does not exist; omit it")
        if index >= session.messages:
            raise NotFoundError(
                f"session {session_id!r} has no message {index} to be a source; it has "
                f"{session.messages}"
            )
        (message,) = await space.handle.messages(session_id, index, index + 1)
        if message.state == "erased":
            raise NotFoundError(
                f"source message {index} of session {session_id!r} was erased; omit it"
            )
        epochs.setdefault(session_id, session.epoch)
    return epochs or None


async def read(space: SpaceContext, name: Any, revision: Any) -> str:
    """Return the text of a file, now or as of a revision. Raises NotFoundError."""
    if (wrong := check_file_name(name)) is not None:
        raise UsageError(f"invalid bank file name: {wrong}")
    if revision is None:
        text = (await space.state()).texts.get(name)
    else:
        text = (await _texts(space, revision))[0].get(name)
    if text is None:
        when = "" if revision is None else f" in revision {revision}"
        raise NotFoundError(f"space {space.name!r} has no file {name!r}{when}")
    return text


async def history(space: SpaceContext, limit: Any) -> list[BankRevision]:
    """List the revisions of the bank, newest first."""
    most = arguments.whole(limit, "limit")
    await space.rules()
    return records.read_revisions(await space.of_kind(records.REVISION))[::-1][:most]


async def diff_between(space: SpaceContext, since: Any, until: Any) -> str:
    """Return what changed between two revisions, as unified diffs of all files."""
    if until is None:
        until = (await space.state()).meta.revision
    number = arguments.whole(until, "until")
    first = max(0, number - 1) if since is None else arguments.whole(since, "since")
    before, after = (await _texts(space, first))[0], (await _texts(space, number))[0]
    return "".join(
        diff(name, before.get(name, ""), after.get(name, "")) for name in sorted(before | after)
    )


async def rollback(space: SpaceContext, to: Any, *, restore_notes: Any = False) -> BankRevision:
    """Restore the texts of revision ``to`` as a new revision; return the newest one.

    With ``restore_notes``, the notes consumed since then are live again.

    Raises NotFoundError, and BusyError if others are changing the bank.
    """
    number = arguments.whole(to, "to")
    arguments.switch(restore_notes, "restore_notes")
    files, synthesis = await _texts(space, number)
    async with bank_claim_of(space) as claim:
        # What is hidden is still stored, and the history must say what becomes of it.
        state = await space.stored_state()
        texts = dict.fromkeys(state.texts, None) | files
        restored: list[Note] = []
        if restore_notes:
            # Later revisions consumed these, and their retention is not over.
            consumed = [*await space.consumed_notes(), *await space.learnt()]
            restored = [note for note in consumed if (note.consolidation or 0) > number]
        _, writes = change.put(
            state,
            texts,
            kind="rollback",
            now=space.handle.clock(),
            synthesis=synthesis,
            to=number,
            restored=restored,
        )
        await _commit(space, claim, writes)
    newest = await history(space, 1)
    if not newest:
        raise NotFoundError(f"space {space.name!r} has no revision; there is nothing to roll back")
    return newest[0]


async def _texts(space: SpaceContext, revision: Any) -> tuple[dict[str, str], str]:
    """Return files and synthesis as of a revision; 0 is the empty bank."""
    number = arguments.whole(revision, "the revision")
    state = await space.stored_state()
    if number > state.meta.revision:
        raise NotFoundError(f"space {space.name!r} has no revision {number}; see its history")
    files, synthesis = records.texts_at(await space.of_kind(records.REVISION), number)
    gone = await space.dead_lines(state)
    living = {name: lines.without(text, gone) for name, text in files.items()}
    return living, "" if gone else synthesis


async def clean_space(handle: Handle, name: str) -> tuple[str, ...]:
    """Remove what came from messages that are gone; name all exports, which are out of reach.

    While another run writes the bank, that removes it. Nobody reads such lines meanwhile.
    """
    space = SpaceContext(handle, name, None, BankPolicy())
    if await space.current_header() is None:
        return ()
    learns = (await space.rules()).learn
    if learns and await _gone(space, await space.stored_state(), for_good=True):
        with suppress(BusyError, NotFoundError):
            async with bank_claim_of(space) as claim:
                await clean(space, claim, for_good=True)
    return source_links.exported(name, await space.of_kind(records.EXPORT))


async def _gone(space: SpaceContext, state: BankState, *, for_good: bool) -> set[Source]:
    """Return the sources of a bank's lines that are gone."""
    sources = lines.sources_of(state.origins)
    return await learn.dead_sources(
        space.handle, space.name, space.identity, sources, for_good=for_good
    )


async def clean(space: SpaceContext, claim: RecordClaim, *, for_good: bool = False) -> None:
    """Remove what came from messages that are gone, under a claim on the bank.

    With ``for_good``, what is out of sight for a time stays, and is shown again afterwards.
    """
    while True:
        state = await space.stored_state()
        dead = await _gone(space, state, for_good=for_good)
        if not dead:
            return
        heirs = await learn.heirs(space.handle, space.name, space.identity, dead)
        writes = change.forget_lines(
            state,
            lines.dead(state.origins, dead - heirs.keys()),
            heirs=heirs,
            learnt=await space.learnt(),
            revisions=await space.of_kind(records.REVISION),
            now=space.handle.clock(),
        )
        await _commit(space, claim, writes)


async def _commit(space: SpaceContext, claim: RecordClaim, writes: Sequence[RecordWrite]) -> None:
    """Write under a claim, if there is anything to write. Raises BusyError or NotFoundError."""
    if writes and not await shielded(claim.commit(writes)):
        raise await space.refused()


async def export(
    space: SpaceContext, folder: Any, overwrite: Any, options: Any, open_storage: OpenStorage
) -> ExportReport:
    """Write the bank into a folder, or to object storage. Raises FileError and UsageError."""
    arguments.switch(overwrite, "overwrite")
    place, storage = _place(folder, options, open_storage)
    state = await space.state()
    # The place is recorded before anything is written there, so that an erasure can name it.
    where = folder_io.absolute_path(place) if storage is None else place
    write = records.write_of(records.EXPORT, space.name, where, str(state.meta.revision))
    if not await space.put([write]):
        raise await space.refused()
    bank = exchange.exchanged(state, space.identity, overwrite=overwrite, export=True)
    if storage is None:
        report = await _export_to_folder(space, place, bank)
    else:
        report = await object_io.export_to(storage, bank)
    return replace(report, folder=place)


async def load(
    space: SpaceContext, folder: Any, overwrite: Any, options: Any, open_storage: OpenStorage
) -> LoadReport:
    """Load the changes made in a folder or in object storage as one new revision.

    Raises FileError and UsageError for the place, BusyError.
    """
    arguments.switch(overwrite, "overwrite")
    place, storage = _place(folder, options, open_storage)
    await space.rules()
    async with bank_claim_of(space) as claim:
        state = await space.state()
        bank = exchange.exchanged(state, space.identity, overwrite=overwrite, export=False)
        pointer: Pointer | None
        if storage is None:
            entries, text = await asyncio.to_thread(folder_io.read_from, place, bank.names)
            pointer = exchange.read_pointer(text)
        else:
            pointer, entries = await object_io.read_from(storage, bank.names)
        exchange.check_space(bank, pointer, place=place)
        newer = set[str]()
        if pointer is not None and pointer.owner == bank.pointer.owner:
            revisions = records.read_revisions(await _since(space, bank, pointer))
            newer = {name for each in revisions if each.kind != "load" for name in each.files}
        report, texts = exchange.load(bank, entries, pointer, newer, place=place)
        stored = await space.stored_state()
        after, writes = change.put(stored, texts, kind="load", now=space.handle.clock())
        await _commit(space, claim, writes)
    before = state.texts
    return replace(
        report,
        folder=place,
        revision=after.meta.revision if writes else None,
        diff="".join(
            diff(name, before.get(name, ""), text) for name, text in sorted(texts.items())
        ),
    )


@asynccontextmanager
async def bank_claim_of(space: SpaceContext) -> AsyncGenerator[RecordClaim]:
    """Hold the claim on the bank. Raises BusyError, or NotFoundError if it was erased.

    Its writes are shielded, so that a cancelled claim is still known and released.
    """
    claim = bank_claim(space, uuid.uuid4().hex)
    try:
        if not await shielded(claim.take()):
            raise await space.refused()
        yield claim
    finally:
        await shielded(claim.release())


def _place(
    folder: Any, options: Any, open_storage: OpenStorage
) -> tuple[str, ObjectStorage | None]:
    """Return a URL and the object storage that it names, or the path of a folder and None."""
    storage_options = read_options(options)
    if (url := read_url(folder)) is not None:
        return str(url), open_storage(url, storage_options)
    if options is not None:
        raise UsageError(
            "options need object storage, such as s3://BUCKET/PREFIX; omit them for a folder"
        )
    return folder_io.folder_path(folder), None


async def _export_to_folder(space: SpaceContext, path: str, bank: ExchangedBank) -> ExportReport:
    """Write the bank into a folder, unless it has a later revision or foreign files."""
    entries, text = await asyncio.to_thread(folder_io.read_from, path, bank.touched, create=True)
    pointer = exchange.read_pointer(text)
    if (later := exchange.superseding(bank, pointer, place=path)) is not None:
        return ExportReport("", bank.pointer.revision, superseded_by=later)
    stored = exchange.hashes_of(entries)
    names = exchange.strange(bank, stored, pointer)
    if names and not bank.overwrite:
        revisions = map(records.read_texts, await _since(space, bank, pointer))
        names -= exchange.recognised(names, stored, revisions)
    if text is not None and pointer is None:
        names.add(exchange.META)
    if not bank.overwrite:
        exchange.refuse(names, place=path)
    write, remove, report = exchange.plan(bank, stored)
    is_new = pointer != bank.pointer
    await asyncio.to_thread(folder_io.write_to, path, bank, write, remove, point=is_new)
    return report


async def _since(space: SpaceContext, bank: ExchangedBank, pointer: Pointer | None) -> list[Record]:
    """Return the records of the revisions after a pointer's; of all of them without a pointer."""
    first = pointer.revision if pointer is not None and pointer.owner == bank.pointer.owner else 0
    revisions = [
        await space.one(records.REVISION, records.number_key(number))
        for number in range(bank.pointer.revision, first, -1)
    ]
    return [*filter(None, revisions)]
