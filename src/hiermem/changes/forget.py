"""Reads what a space knows of a matter, and writes that it forgets it: messages, notes, lines.

``text.terms`` decides which words a text holds. Every message, note and line is looked at, so that
nothing depends on a ranking.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Container, Iterable, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Final, Literal, TypeAlias

from hiermem.bank import records
from hiermem.bank.lines import bare, known_line, line_id, says
from hiermem.bank.space import bank_claim_of
from hiermem.bank.store import SpaceContext
from hiermem.calls.retry import shielded
from hiermem.changes import change
from hiermem.context import shared
from hiermem.context.space import conversation_lines, flag_needs
from hiermem.data import word_lists
from hiermem.errors import UsageError
from hiermem.handle import Handle, every_session
from hiermem.search import tenant
from hiermem.search.search import Question
from hiermem.text.fence import in_turn
from hiermem.text.measure import body, speaker
from hiermem.text.terms import FIRST_PERSON, STOP_WORDS, spellings, stem, terms, words
from hiermem.text.wishes import speaks_as
from hiermem.types import StoredMessage
from hiermem.types.bank import ForgetReport, KnownLine, Note
from hiermem.types.transaction import Record, RecordWrite
from hiermem.types.tree import SessionFilter, member_of

Authors: TypeAlias = Literal["person", "all"]
_Words: TypeAlias = Collection[frozenset[str]]
_Lines: TypeAlias = Sequence[KnownLine]
_PAGE: Final = 500
_PARTICLES: Final = word_lists("stop_words")["particles"]
#: More than a space has.
_ALL: Final = 2**31 - 1
#: The passages of conversations that are found for a text.
_PASSAGES: Final = 20
#: The passages that are found as other wordings of a forgotten matter.
_WORDINGS: Final = 50
#: The score of a passage that is surely about a matter.
_SURE: Final = 0.3
#: A word that no more messages hold is rare; each of these may speak of a forgotten matter.
_RARE: Final = 50


async def about(space: SpaceContext, text: str | None = None) -> list[KnownLine]:
    """Return what the space knows: wishes, files, notes, conversations; of a matter if given."""
    rules = await space.rules()
    handle = space.handle
    flagged, withdrawn = await handle.store.read(flag_needs(space.name, _ALL))
    times = {(name, stored.index): stored.created_at for name, stored in flagged}
    wishes = [
        KnownLine(line.text.partition(": ")[2], "wish", times[line.source], sources=(line.source,))
        for line in shared.wish_lines(flagged, withdrawn, rules.person)
    ]
    state = await space.state()
    files = [
        known_line(line.text, state.origins)
        for name in state.texts
        for line in shared.file_lines(name, state.texts[name], state.meta.revision)
    ]
    lefts = await handle.store.records(records.kind_of(change.LEFT, space.name))
    left = {each.scope for each in lefts}
    notes = [
        _of_note(note)
        for note in await space.with_sources(await space.live_notes())
        if not note.sources or not left.issuperset(name for name, _ in note.sources)
    ]
    lines = [*wishes, *files, *reversed(notes)]
    if text is None:
        of_space = SessionFilter(member_of(space.name))
        members = [record async for record in every_session(handle.store, of_space)]
        conversations = await conversation_lines(handle, [m for m in members[::-1] if m.messages])
        return lines + [_of_line(line) for line in conversations]
    wanted = {term for term in terms(text) if term not in FIRST_PERSON}
    sharing = [line for line in lines if wanted & set(terms(line.text))]
    return sharing + await _passages(space, text, _PASSAGES, sharing, least=_SURE)


async def _passages(
    space: SpaceContext, text: str, limit: int, besides: Iterable[KnownLine], least: float = 0
) -> list[KnownLine]:
    """Return the passages of the space's conversations that answer a text best.

    Those of a score below ``least`` are returned only if there is no other.
    """
    question = Question("", text, sessions=SessionFilter(member_of(space.name)))
    hits, rules = await tenant.search(space.handle, question, limit), await space.rules()
    sources = {source for line in besides for source in line.sources}
    return [
        _of_message(hit.session_id, hit.message, rules.person, hit.text)
        for hit in [hit for hit in hits if hit.score >= least] or hits
        if hit.message and (hit.session_id, hit.message.index) not in sources
    ]


def _of_note(note: Note) -> KnownLine:
    return KnownLine(note.text, "note", note.timestamp, sources=note.sources)


def _of_line(line: shared.SharedLine) -> KnownLine:
    origin = line.origin
    since = datetime.fromisoformat(origin.day).replace(tzinfo=UTC)
    text = line.text.partition("] ")[2]
    return KnownLine(text, "conversation", since, sources=((origin.name, origin.index),))


async def forget(
    space: SpaceContext, text: str, *, authors: Authors = "person", dry_run: bool = False
) -> ForgetReport:
    """Forget every message, note and line of a space that holds all content words of ``text``.

    ``unproven`` are messages of others that hold them, those of anybody that share a rare word with
    ``text``, and passages that a search finds.

    Raises UsageError if it has no such word, NotFoundError, and BusyError.
    """
    by_word = content_words(text)
    if not (wanted := list(by_word.values())):
        raise UsageError("text holds no word to search by; name what to forget")
    rules, handle = await space.rules(), space.handle
    gone: list[KnownLine] = []
    unproven: list[KnownLine] = []
    taken: dict[str, list[int]] = {}
    sharing: dict[frozenset[str], list[KnownLine]] = {word: [] for word in wanted}
    others: set[tuple[str, int]] = set()
    async for session_id, stored in _messages(handle, space.name):
        may_go = authors == "all" or speaks_as(stored.message, rules.person)
        others |= set() if may_go else {(session_id, stored.index)}
        shared_words = _held(body(stored.message), wanted)
        line = _of_message(session_id, stored, rules.person)
        if len(shared_words) < len(wanted):
            for word in shared_words:
                # Of a frequent word, one more than the limit is kept, to know it by.
                sharing[word] += [line] if len(sharing[word]) <= _RARE else []
        elif may_go:
            gone.append(line)
            taken.setdefault(session_id, []).append(stored.index)
        else:
            unproven.append(line)
    rare = [line for lines in sharing.values() if len(lines) <= _RARE for line in lines]
    unproven += {line.sources: line for line in rare}.values()
    # Words such as "my" would find what has nothing to do with the matter.
    unproven += await _passages(space, " ".join(by_word), _WORDINGS, (*gone, *unproven))
    state = await space.state()
    lines = [bare(line) for text in state.texts.values() for line in text.split("\n") if says(line)]
    known = [known_line(line, state.origins) for line in lines]
    # What others said stays in the bank as long as in their messages.
    kept = [line for line in known if line.sources and others.issuperset(line.sources)]
    erased = {source for line in gone for source in line.sources}
    went = [line for line in known if holds(line.text, wanted) or erased & {*line.sources}]
    went = [line for line in went if line not in kept]
    gone += await _forget_bank(space, wanted, went, kept, dry_run=dry_run)
    unproven += [line for line in kept if holds(line.text, wanted)]
    places = [record.key for record in await space.of_kind(records.EXPORT)]
    places += [copy.place for copy in await change.copies_of(handle.store)]
    scrubbed = not dry_run
    for session_id, indices in () if dry_run else taken.items():
        scrubbed &= (await change.erase(handle, session_id, indices)).scrubbed
    return ForgetReport(tuple(gone), tuple(unproven), tuple(places), scrubbed, dry_run)


def content_words(text: str) -> dict[str, frozenset[str]]:
    """Return the content words of a text, with the terms of which any stands for the word.

    One word alone says too little if a particle turns it into another matter, as in "out of work":
    there the phrase is wanted as well.

    >>> {word: sorted(of) for word, of in content_words("my flights with the Müllers").items()}
    {'flights': ['flight'], 'mullers': ['mueller', 'muller']}
    """
    spoken, others = words(text), spellings(text)
    content = {
        word: frozenset(stem(form) for form in (word, others.get(word, word)))
        for word in spoken
        if word not in STOP_WORDS and word not in FIRST_PERSON
    }
    telling = [at for at, word in enumerate(spoken) if word in content or word in _PARTICLES]
    if len(content) == 1 < len(telling):
        phrase = " ".join(spoken[telling[0] : telling[-1] + 1])
        content[phrase] = frozenset([phrase])
    return content


def holds(text: str, wanted: _Words) -> bool:
    """Return whether a text holds each of the words, in any form."""
    return len(_held(text, wanted)) == len(wanted)


def _held(text: str, wanted: _Words) -> list[frozenset[str]]:
    """Return the words, in any form, and the phrases that a text holds."""
    held, spoken = {*terms(text)}, f" {' '.join(words(text))} "
    return [of for of in wanted if of & held or any(f" {form} " in spoken for form in of)]


async def _messages(handle: Handle, space: str) -> AsyncIterator[tuple[str, StoredMessage]]:
    """Yield every message of a space's members that is not erased, with its session."""
    async for record in every_session(handle.store, SessionFilter(member_of(space))):
        for start in range(0, record.messages, _PAGE):
            for stored in await handle.store.messages(record.id, start, start + _PAGE):
                if stored.state != "erased":
                    yield record.id, stored


def _of_message(
    session_id: str, stored: StoredMessage, person: str, passage: str | None = None
) -> KnownLine:
    """Return a message, or a passage of it, under its speaker's name if that is not the person."""
    text = body(stored.message) if passage is None else passage
    text = text if speaks_as(stored.message, person) else in_turn(speaker(stored.message), text)
    return KnownLine(text, "conversation", stored.created_at, sources=((session_id, stored.index),))


async def _forget_bank(
    space: SpaceContext, wanted: _Words, went: _Lines, kept: _Lines, *, dry_run: bool
) -> list[KnownLine]:
    """Remove notes, and lines of files and synthesis in all revisions; return what went.

    Of the lines of files, ``went`` go, in other words too, and are returned, and ``kept`` stay.
    Where the synthesis says no more than these, it is not returned.
    """
    stays = {line_id(line.text) for line in kept}
    async with nullcontext() if dry_run else bank_claim_of(space) as claim:
        writes: list[RecordWrite] = []
        notes = [*await space.live_notes(), *await space.consumed_notes()]
        doomed = [note for note in notes if holds(note.text, wanted)]
        gone = [*map(_of_note, doomed), *went]
        by_key = {note.key: note for note in doomed}
        for kind in (records.NOTE, records.BLOCKED, records.CONSUMED):
            for record in [each for each in await space.of_kind(kind) if each.key in by_key]:
                # That a note arrived stays known, and nothing that it said.
                left = records.note_body(records.forgotten(by_key[record.key]))
                rest = left if kind == records.CONSUMED else None
                writes.append(_write(space, kind, record, rest))
                if kind == records.NOTE:
                    consumed = (records.CONSUMED, space.name, record.key, left)
                    writes.append(records.write_of(*consumed, expected=0))
        said = [set(terms(line.text)) for line in (*kept, *gone)]
        for kind in (records.BANK, records.SYNTHESIS):
            for record in await space.of_kind(kind):
                text, lines = _without(record.body, wanted, stays)
                more = [line for line in lines if not any(map({*terms(line)}.issubset, said))]
                gone += [KnownLine(bare(line), "file") for line in more]
                writes += [_write(space, kind, record, text)] if lines else []
        for record in await space.of_kind(records.REVISION):
            rest_of = records.without_lines(record, lambda text: _without(text, wanted, stays)[0])
            writes += [_write(space, records.REVISION, record, rest_of)] if rest_of else []
        if claim and writes and not await shielded(claim.commit(writes)):
            raise await space.refused()
    return gone


def _write(space: SpaceContext, kind: str, record: Record, text: str | None) -> RecordWrite:
    return records.write_of(kind, space.name, record.key, text, expected=record.version)


def _without(text: str, wanted: _Words, stays: Container[str]) -> tuple[str, list[str]]:
    """Return a text without its lines that hold all words, and these; by its id, a line stays."""
    lines = text.splitlines(keepends=True)
    gone = [line for line in lines if line_id(line) not in stays and holds(line, wanted)]
    # Empty lines keep the numbers of the others, by which contexts show them.
    return "".join("\n" if line in gone else line for line in lines), [g.strip() for g in gone]
