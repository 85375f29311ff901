"""The formats that can be imported, and how a file's format is seen."""

from __future__ import annotations

import re
import zipfile
import zlib
import zoneinfo
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from datetime import UTC, tzinfo
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from hiermem.errors import InvalidMessageError, UnreadableFileError, UsageError
from hiermem.importers import (
    chatgpt,
    claude,
    claude_code,
    codex,
    irc,
    messages,
    slack,
    transcript,
    whatsapp,
)
from hiermem.importers.draft import Branches, DateOrder, Options
from hiermem.importers.files import Export, File, Head, head_of, opened
from hiermem.types.conversation import Conversation


class Format(NamedTuple):
    """A format: its name, what it is, how its files are recognised, and how they are read."""

    name: str
    about: str
    recognise: Callable[[Head], bool]
    read: Callable[[Export, Options], Iterator[Conversation]]


#: Asked in this order: the most particular first.
FORMATS = (
    Format("chatgpt", "ChatGPT's export: the zip, or its conversations.json", chatgpt.recognise,
           chatgpt.read),
    Format("claude", "claude.ai's export: the zip, or its conversations.json", claude.recognise,
           claude.read),
    Format("claude-code", "a session of Claude Code (JSONL), or a folder of them",
           claude_code.recognise, claude_code.read),
    Format("codex", "a session of Codex (JSONL), or a folder of them", codex.recognise, codex.read),
    Format("slack", "Slack's export: the zip, its folder, or the JSON of one day", slack.recognise,
           slack.read),
    Format("messages", "messages of OpenAI chat, OpenAI Responses or Anthropic, as JSON or JSONL",
           messages.recognise, messages.read),
    Format("whatsapp", "a chat exported from WhatsApp: the text, or its zip", whatsapp.recognise,
           whatsapp.read),
    Format("irc", "a log of irssi, WeeChat, HexChat, mIRC or ZNC", irc.recognise, irc.read),
    Format("text", "a transcript with a line 'Name: text' for each message", transcript.recognise,
           transcript.read),
)  # fmt: skip
_BY_NAME = {each.name: each for each in FORMATS}
_CONVERSATIONS = re.compile(r"conversations[-_\d]*\.json")
_READABLE = (".json", ".jsonl", ".ndjson", ".txt", ".log", ".weechatlog")


def read_chats(
    path: str | PathLike[str],
    format: str | None = None,  # noqa: A002 - the word for it
    *,
    branches: Branches = "forks",
    assistants: Collection[str] = (),
    speakers: Collection[str] = (),
    timezone: str | tzinfo | None = None,
    dates: DateOrder | None = None,
) -> Iterator[Conversation]:
    """Yield the conversations of a file, a folder or a zip archive, one at a time.

    The format is recognised; ``format`` names one of ``FORMATS`` instead. With ``branches="skip"``
    only the current branch of each conversation is read. ``assistants`` are the speakers that are
    not people. ``speakers`` are those of a plain transcript, where they cannot be guessed.
    ``timezone`` is that of times that name none, UTC by default. ``dates`` is the order of day,
    month and year in a WhatsApp chat, which is guessed by default.

    Raises UsageError for a wrong argument at once, and UnreadableFileError when the first
    conversation that cannot be read is reached. Every message has a key, so that it can be appended
    again without harm.
    """
    if format is not None and format not in _BY_NAME:
        raise UsageError(f"there is no format of that name; these can be read: {_names()}")
    if branches not in ("forks", "skip"):
        raise UsageError('branches must be "forks" or "skip"')
    if dates not in (None, "dmy", "mdy", "ymd"):
        raise UsageError('dates must be "dmy", "mdy" or "ymd"')
    for what, names in (("assistants", assistants), ("speakers", speakers)):
        if isinstance(names, str) or not all(isinstance(name, str) for name in names):
            raise UsageError(f"{what} must be a collection of names")
    options = Options(
        branches=branches,
        assistants=frozenset(map(str.casefold, assistants)),
        speakers=frozenset(map(str.casefold, speakers)),
        zone=_zone(timezone),
        zone_given=timezone is not None,
        dates=dates,
    )
    return _read(Path(path), None if format is None else _BY_NAME[format], options)


def _names() -> str:
    return ", ".join(each.name for each in FORMATS)


def _zone(given: str | tzinfo | None) -> tzinfo:
    if given is None:
        return UTC
    if isinstance(given, tzinfo):
        return given
    try:
        return zoneinfo.ZoneInfo(given)
    except (ValueError, TypeError, OSError, zoneinfo.ZoneInfoNotFoundError):
        raise UsageError(
            'timezone is unknown here; it must be a name such as "Europe/Berlin"'
        ) from None


def _read(path: Path, named: Format | None, options: Options) -> Iterator[Conversation]:
    try:
        with opened(path) as export:
            any_found = False
            for conversation in _conversations(export, path.name, named, options):
                any_found = True
                yield conversation
            if not any_found:
                raise UnreadableFileError(f"{path.name} holds no messages")
    except InvalidMessageError as error:
        place = "" if str(error).startswith(path.name) else f"{path.name}: "
        raise UnreadableFileError(f"{place}{error}") from None
    except RecursionError:
        raise UnreadableFileError(f"{path.name} is nested too deeply") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        # An archive that is damaged inside, cut off or encrypted.
        what = type(error).__name__
        raise UnreadableFileError(f"{path.name} cannot be unpacked ({what})") from None


def _conversations(
    export: Export, name: str, named: Format | None, options: Options
) -> Iterator[Conversation]:
    if len(export.files) > 1 and (
        named is _BY_NAME["slack"] or (named is None and slack.recognise_all(export))
    ):
        yield from slack.read(export, options)
        return
    targets = _targets(export)
    known = [
        (file, named or found)
        for file in targets
        if (found := _format_of(file, alone=len(targets) == 1)) is not None or named is not None
    ]
    if not known:
        raise UnreadableFileError(
            f"{name} is of no format that is recognised. These can be imported: "
            + "; ".join(f"{each.name} ({each.about})" for each in FORMATS)
        )
    left = {
        "files of no known format left out": len(targets) - len(known),
        "files beside the conversations left out": len(export.files) - len(targets),
    }
    missed = {what: count for what, count in left.items() if count}
    for file, found in known:
        assert found is not None
        stem = export.stem if len(targets) == 1 else ""
        stem = stem or str(PurePosixPath(file.name).with_suffix(""))
        for conversation in found.read(Export(stem, (file,)), options):
            notes, missed = {**conversation.notes, **missed}, {}
            yield replace(conversation, notes=notes)


def _format_of(file: File, *, alone: bool) -> Format | None:
    """Return a file's format; None where it has none that is known."""
    try:
        head = head_of(file)
    except UnreadableFileError:
        if alone:
            raise
        return None
    if alone and not head.values and not head.lines:
        raise UnreadableFileError(f"{file.name} holds no messages")
    return next((each for each in FORMATS if each.recognise(head)), None)


def _targets(export: Export) -> tuple[File, ...]:
    """Return the files that hold conversations; those of a provider's export have a known name."""
    if len(export.files) < 2:
        return export.files
    known = [file for file in export.files if _CONVERSATIONS.fullmatch(file.parts[-1])]
    readable = [file for file in export.files if file.parts[-1].lower().endswith(_READABLE)]
    return tuple(known or readable)
