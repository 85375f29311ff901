"""Helpers that every format uses to read a conversation: keys, times, names and notes."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from typing import Any, Literal, TypeAlias

from hiermem.core.text.measure import fingerprint
from hiermem.core.text.policy import MAX_NAME, clean_message
from hiermem.errors import InvalidMessageError, UnreadableFileError
from hiermem.types import FilePart, ImagePart, Message, Part, TextPart
from hiermem.types.conversation import Conversation

Keyed: TypeAlias = tuple[Message, str | None]
Branches: TypeAlias = Literal["forks", "skip"]
DateOrder: TypeAlias = Literal["dmy", "mdy", "ymd"]

#: Session ids and message keys leave room for what is added to them.
_MAX_ID = 200
#: The characters of an image or file inside a message; a screenshot has about a million.
_MAX_REFERENCE = 3_000_000
_YEARS = (1971, 2200)


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


class Draft:
    """A conversation while it is read: collects messages, gives keys, counts notes."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.notes: Counter[str] = Counter()
        self._messages: list[Message] = []
        self._seen: set[str] = set()
        self._repeats: Counter[str] = Counter()

    def note(self, what: str, count: int = 1) -> None:
        """Count something that was assumed, left out or not understood."""
        self.notes[what] += count

    def add(self, message: Message, *, key: object = None, when: str = "") -> str | None:
        """Add a message and return its key; None where one of that key was added before.

        ``key`` is the export's own id. Without one, the key is a hash of the time as it is written
        in the file (``when``), the speaker, the text, and how often these came before.
        """
        message = self._without_large(message)
        if isinstance(key, str) and 0 < len(key) <= _MAX_ID:
            made = key
        else:
            made = self._hashed(message, when)
        if made in self._seen:
            self.note("messages with the id of an earlier one left out")
            return None
        self._seen.add(made)
        try:
            kept = clean_message(replace(message, key=made), on_bad="replace")
        except InvalidMessageError as error:
            raise UnreadableFileError(f"{self.where}: {error}") from None
        if kept.content != message.content:
            self.note("messages with characters that cannot be stored, replaced by U+FFFD")
        self._messages.append(kept)
        return kept.key

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

    def _hashed(self, message: Message, when: str) -> str:
        if not when and message.created_at is not None:
            when = message.created_at.isoformat()
        if message.name and message.role == "assistant" and not message.tool_calls:
            # Who is the assistant is the caller's word, and may change between two imports.
            message = replace(message, role="user")
        digest = digest_of(when, fingerprint(message))
        self._repeats[digest] += 1
        repeat = self._repeats[digest]
        return digest if repeat == 1 else f"{digest}-{repeat}"

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
        known = (m.created_at for m in messages if m.created_at is not None)
        last = next(known, otherwise)
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
        """Yield what was read as a conversation; nothing where no message was added."""
        if messages := self.take(otherwise):
            yield Conversation(session, title, messages, format=format, notes=self.notes)


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


def id_of(value: object, otherwise: str) -> str:
    """Return an id of the export as a session id, or ``otherwise``; a long one is hashed."""
    text = value if isinstance(value, str) and value.strip() else otherwise
    text = "".join(c if c.isprintable() else "_" for c in text)
    return text if len(text) <= _MAX_ID else f"{text[:80]}-{digest_of(text)}"


def name_of(value: object) -> str | None:
    """Return a title, or a speaker's or a tool's name, cut to what is taken."""
    if not isinstance(value, str) or not value.strip():
        return None
    text = value.replace("\0", "").encode("utf-8", "replace").decode("utf-8").strip()
    return text[:MAX_NAME]


def moment(value: object, zone: tzinfo = UTC) -> datetime | None:
    """Return a time given as ISO 8601 text or as seconds (or milliseconds) since 1970, or None.

    >>> moment("2026-02-02T08:00:00Z").isoformat()
    '2026-02-02T08:00:00+00:00'
    """
    if isinstance(value, str):
        try:
            number = float(value)
        except ValueError:
            return _from_iso(value, zone)
        value = number
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        seconds = float(value)
    except OverflowError:
        return None
    if not math.isfinite(seconds) or seconds <= 0:
        return None
    while seconds > 1e11:  # milliseconds, microseconds
        seconds /= 1_000
    try:
        return sensible(datetime.fromtimestamp(seconds, UTC))
    except (OverflowError, OSError, ValueError):
        return None


def _from_iso(text: str, zone: tzinfo) -> datetime | None:
    try:
        when = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return sensible(when if when.tzinfo is not None else when.replace(tzinfo=zone))


def sensible(when: datetime) -> datetime | None:
    """Return a time of a year in which people may have chatted, or None."""
    return when if _YEARS[0] <= when.year <= _YEARS[1] else None


def role_of(name: str, options: Options) -> Literal["user", "assistant"]:
    """Return the role of a speaker: that of the assistant only where the caller named it."""
    return "assistant" if name.casefold() in options.assistants else "user"


def zone_note(draft: Draft, options: Options, value: object = "") -> None:
    """Note, once for a conversation, that times without a zone were read as UTC.

    ``value`` is a time as it is written, if it may name a zone.
    """
    what = "conversations whose times name no zone, read as UTC"
    if options.zone_given or what in draft.notes or not isinstance(value, str):
        return
    try:
        named = bool(value) and datetime.fromisoformat(value.strip()).tzinfo is not None
    except ValueError:
        named = True  # a number of seconds
    if not named:
        draft.note(what)


def objects(value: object) -> list[dict[str, Any]]:
    """Return the objects of a list; none where the value is no list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def kind_name(value: Any) -> str:
    """Return the name of a type as a note may show it."""
    text = value if isinstance(value, str) else type(value).__name__
    return "".join(c for c in text if c.isalnum() or c in "_.-")[:40] or "?"
