"""Reads a conversation message by message, for every format: keys, times, ids and notes.

Counts what was assumed or left out while files are read, and what could not be read.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from typing import Literal, TypeAlias
from unicodedata import normalize

from hiermem.errors import InvalidMessageError
from hiermem.importers.dates import UNSEEN, in_order, instant, moment
from hiermem.importers.values import name_of
from hiermem.log.alignment import lost_id
from hiermem.text.measure import body
from hiermem.text.policy import clean_message
from hiermem.types import FilePart, ImagePart, Message, Part, TextPart
from hiermem.types.message import Conversation

#: The places that are kept of each kind.
_PLACES = 3


class Notes:
    """What a reading has to say, until the next conversation takes it.

    ``note`` counts what is known and meant: system lines left out, times read as UTC. ``miss``
    counts what was not understood or is damaged, with the place where that was met first.
    """

    def __init__(self) -> None:
        self._known: Counter[str] = Counter()
        self._missed: dict[str, tuple[int, list[str]]] = {}
        #: How much could not be read, in all.
        self.missed = 0

    def note(self, what: str, count: int = 1) -> None:
        """Count something that was assumed or left out."""
        self._known[what] += count

    def miss(self, what: str, where: str, count: int = 1) -> None:
        """Count something that could not be read; ``where`` is its place, and what is wrong."""
        before, places = self._missed.get(what, (0, []))
        self._missed[what] = (before + count, [*places, where][:_PLACES])
        self.missed += count

    def reasons(self) -> list[str]:
        """Return the first places of what could not be read, of each kind one, then the seconds."""
        kinds = [places for _, places in self._missed.values()]
        return list(dict.fromkeys(p[n] for n in range(_PLACES) for p in kinds if n < len(p)))

    def take(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return the counts of both kinds, and forget them."""
        notes, missed = dict(self._known), self._missed
        self._known, self._missed = Counter(), {}
        return notes, {
            f"{what} (the first: {first})": count for what, (count, (first, *_)) in missed.items()
        }


Keyed: TypeAlias = tuple[Message, str | None]
Branches: TypeAlias = Literal["forks", "skip"]
DateOrder: TypeAlias = Literal["dmy", "mdy", "ymd"]

#: Session ids and message keys leave room for what is added to them.
_MAX_ID = 200
#: The characters of an image or file inside a message; a screenshot has about a million.
_MAX_REFERENCE = 3_000_000


@dataclass(frozen=True, slots=True)
class Options:
    """How a file is read where it does not say so itself.

    ``assistants`` and ``speakers`` are compared without regard to case. ``zone`` is that of times
    without one.
    """

    branches: Branches = "forks"
    assistants: frozenset[str] = frozenset()
    speakers: frozenset[str] = frozenset()
    zone: tzinfo = UTC
    zone_given: bool = False
    dates: DateOrder | None = None
    fields: Mapping[str, str] | None = None


class Draft:
    """A conversation while it is read: collects messages, gives keys, counts notes."""

    def __init__(self, where: str, notes: Notes) -> None:
        self.where = where
        self.notes = notes
        self.zone_noted = False
        self._messages: list[Message] = []
        self._seen: dict[str, Message] = {}
        self._repeats: Counter[str] = Counter()
        self._last: datetime | None = None

    def note(self, what: str, count: int = 1) -> None:
        """Count something that was assumed or left out."""
        self.notes.note(what, count)

    def miss(self, what: str, why: str = "") -> None:
        """Count something that could not be read."""
        known = not why or why.startswith(self.where)
        self.notes.miss(what, (why or self.where) if known else f"{self.where}: {why}")

    def time(self, value: object, options: Options) -> datetime | None:
        """Return a time; None if there is none, or if it is not understood, which is counted."""
        at = moment(value, options.zone)
        if at is not None:
            zone_note(self, options, value)
        elif value not in (None, "", 0):
            self.miss("times not understood")
        return at

    @contextmanager
    def reading(self, where: str = "") -> Generator[None]:
        """Count what is read inside as a message that could not be, if it raises an error."""
        if where:
            self.where = where
        try:
            yield
        except (InvalidMessageError, RecursionError) as error:
            why = str(error) if isinstance(error, InvalidMessageError) else "nested too deeply"
            self.miss("messages that cannot be read", why)

    def add(
        self, message: Message, *, key: object = None, when: str = "", text: str | None = None
    ) -> str | None:
        """Add a message and return its key; None where it was not added.

        ``key`` is the export's own id. Without one, the key is a hash of the minute, the thread,
        the text without marks, and how often these came before. So it is the same where the file is
        written by another system or with other names. ``when`` and ``text`` stand for minute and
        text if a later export may have them otherwise.
        """
        message = self._without_large(message)
        if message.created_at is not None:
            self._last = in_order(message.created_at, self._last)
            if self._last is not message.created_at:
                message = replace(message, created_at=self._last)
        own = isinstance(key, str) and 0 < len(key) <= _MAX_ID
        message_key = str(key) if own else self._hashed(message, when, text)
        if (seen := self._seen.get(message_key)) is not None:
            if (seen.role, seen.content) == (message.role, message.content):
                self.note("messages with the id of an earlier one left out")
                return None
            self.note("messages with the id of another one kept beside it")
            message_key = self._hashed(message, when, text)
        try:
            cleaned = clean_message(replace(message, key=message_key), on_bad="replace")
        except InvalidMessageError as error:
            self.miss("messages that cannot be read", str(error))
            return None
        self._seen[message_key] = cleaned
        if cleaned.content != message.content:
            self.note("messages with characters that cannot be stored, replaced by U+FFFD")
        self._messages.append(cleaned)
        return cleaned.key

    def add_log(self, messages: Sequence[Keyed]) -> None:
        """Add the messages of a log, each with its key, and each call followed by its result.

        A log of parallel calls has all calls first and then all results, each a line of its own.
        Sent to a provider as they are, the first calls would lack their results. Only results
        within such a run of calls and results are moved.
        """
        start = 0
        while start < len(messages):
            stop = start
            while stop < len(messages) and _in_run(messages[stop][0]):
                stop += 1
            for message, key in (*_by_calls(messages[start:stop]), *messages[stop : stop + 1]):
                self.add(message, key=key)
            start = stop + 1

    def _hashed(self, message: Message, when: str, text: str | None) -> str:
        at = message.created_at
        # The time as the file writes it: a zone that the caller names changes no key.
        minute = when or (f"{at:%Y-%m-%d %H:%M}" if at is not None else "")
        text = body(message) if text is None else text
        if not text.isascii():
            text = normalize("NFC", UNSEEN.sub("", text))
        digest = digest_of(minute, message.thread, " ".join(text.split()))
        self._repeats[digest] += 1
        n_repeats = self._repeats[digest]
        return digest if n_repeats == 1 else f"{digest}-{n_repeats}"

    def _without_large(self, message: Message) -> Message:
        """Return the message with a word in the place of each image and file that is too large."""
        parts = message.content
        if isinstance(parts, str) or not any(map(_is_large, parts)):
            return message
        self.note("images and files that are too large left out", sum(map(_is_large, parts)))
        kept = (TextPart("[image or file left out]") if _is_large(p) else p for p in parts)
        return replace(message, content=tuple(kept))

    def take(self, otherwise: datetime | None = None) -> tuple[Message, ...]:
        """Return the messages added since the last call, all with a time or all without one.

        ``otherwise`` is the time of the conversation, for messages of which none has a time.
        """
        messages, self._messages = self._messages, []
        last = next((m.created_at for m in messages if m.created_at is not None), otherwise)
        if last is None and messages:
            self.note("messages without a time, dated when they are imported", len(messages))
        if last is None:
            return tuple(messages)
        for number, message in enumerate(messages):
            if message.created_at is None:
                self.note("messages without a time, dated like the one before")
                messages[number] = replace(message, created_at=last)
            else:
                last = message.created_at
        return tuple(messages)

    def finished(
        self,
        format: str,  # noqa: A002 - the field of a conversation
        session: str,
        title: str | None = None,
        otherwise: datetime | None = None,
    ) -> Iterator[Conversation]:
        """Yield what was read as a conversation; nothing where no message was added.

        A conversation without an id gets one by its first message.
        """
        if messages := self.take(otherwise):
            yield Conversation(
                session or lost_id(format, messages[0]), title, messages, format=format
            )

    def named(self, kind: str, stem: str, title: str | None = None) -> Iterator[Conversation]:
        """Yield what was read as the one conversation of a file, which is called after it."""
        return self.finished(kind, id_of(None, kind, stem), title or name_of(stem))


def _in_run(message: Message) -> bool:
    return bool(message.tool_calls) or message.tool_call_id is not None


def _by_calls(run: Sequence[Keyed]) -> Iterator[Keyed]:
    """Yield calls and results, each result after its call."""
    called = {call.id for message, _ in run for call in message.tool_calls}
    results: dict[str, list[Keyed]] = {}
    for each in run:
        if (call_id := each[0].tool_call_id) in called and call_id is not None:
            results.setdefault(call_id, []).append(each)
    for each in run:
        message = each[0]
        if message.tool_call_id not in called:
            yield each
        for call in message.tool_calls:
            yield from results.pop(call.id, ())


def _is_large(part: Part) -> bool:
    return isinstance(part, (ImagePart, FilePart)) and len(part.reference) > _MAX_REFERENCE


def digest_of(*texts: str) -> str:
    """Return a short hash of texts."""
    hashed = hashlib.sha256()
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        hashed.update(f"{len(data)}:".encode())
        hashed.update(data)
    return hashed.hexdigest()[:24]


def id_of(value: object, kind: str, stem: str = "") -> str:
    """Return an id of the export as a session id; a long one is hashed.

    Without one it is ``kind``, with a hash of the file's name if the file has one. The name often
    is a person's, and an id stays in lists that an application keeps after a deletion.

    >>> id_of("c-1", "irc", "Ada"), id_of(None, "irc", "Ada"), id_of(None, "irc")
    ('c-1', 'irc-d9a92af46390', 'irc')
    """
    text = f"{kind}-{digest_of(normalize('NFC', stem))[:12]}" if stem else kind
    if isinstance(value, str) and value.strip():
        text = value
    text = "".join(c if c.isprintable() else "_" for c in text)
    return text if len(text) <= _MAX_ID else f"{text[:80]}-{digest_of(text)}"


def role_of(name: str, options: Options) -> Literal["user", "assistant"]:
    """Return the role of a speaker: that of the assistant only where the caller named it."""
    return "assistant" if name.casefold() in options.assistants else "user"


def zone_note(draft: Draft, options: Options, value: object = "") -> None:
    """Note, once for a conversation, that times without a zone were read as UTC.

    ``value`` is a time as it is written, if it may name a zone.
    """
    when = instant(value)
    named = not isinstance(value, str) or (when is not None and when.tzinfo is not None)
    if not options.zone_given and not draft.zone_noted and not named:
        draft.zone_noted = True
        draft.note("conversations whose times name no zone, read as UTC")
