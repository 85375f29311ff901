"""The formats that can be imported, and how a file's format is seen."""

from __future__ import annotations

import re
import zoneinfo
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, tzinfo
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from hiermem.errors import FileError, InvalidMessageError, UsageError
from hiermem.importers import (
    chatgpt,
    claude,
    claude_code,
    codex,
    fields,
    gemini,
    irc,
    messages,
    shapes,
    slack,
    transcript,
    whatsapp,
)
from hiermem.importers.chats import Shape
from hiermem.importers.draft import Branches, DateOrder, Notes, Options
from hiermem.importers.files import Export, File, Head, exports_of, head_of, nested_objects
from hiermem.importers.values import leads
from hiermem.types.message import Conversation


class Format(NamedTuple):
    """A format: its name, what it is, how its files are recognised, and how they are read."""

    name: str
    about: str
    recognise: Callable[[Head], bool]
    read: Callable[[Export, Options], Iterator[Conversation]]


def _shaped(shape: Shape, about: str) -> Format:
    return Format(shape.name, about, shape.recognise, shape.read)


#: Asked in this order: the most particular first.
FORMATS = (
    _shaped(chatgpt.SHAPE, "ChatGPT's export: the zip, or its conversations.json"),
    _shaped(claude.SHAPE, "claude.ai's export: the zip, or its conversations.json"),
    Format("claude-code", "a session of Claude Code (JSONL), or a folder of them",
           claude_code.recognise, claude_code.read),
    Format("codex", "a session of Codex (JSONL), or a folder of them", codex.recognise, codex.read),
    _shaped(gemini.SHAPE, "a session of Gemini CLI, or Gemini's activity from Takeout (JSON)"),
    _shaped(shapes.COPILOT, "a chat of GitHub Copilot exported from VS Code (JSON)"),
    _shaped(shapes.OPEN_WEBUI, "chats exported from Open WebUI (JSON)"),
    _shaped(shapes.LIBRECHAT, "a conversation exported from LibreChat (JSON)"),
    _shaped(shapes.SILLYTAVERN, "a chat of SillyTavern (JSONL)"),
    _shaped(shapes.TELEGRAM, "the JSON of Telegram Desktop: one chat, or all"),
    _shaped(shapes.DISCORD, "a channel that DiscordChatExporter wrote as JSON"),
    Format("slack", "Slack's export: the zip, its folder, or the JSON of one day", slack.recognise,
           slack.read),
    Format("messages", "messages of OpenAI chat, OpenAI Responses or Anthropic, as JSON or JSONL",
           messages.recognise, messages.read),
    Format("whatsapp", "a chat exported from WhatsApp: the text, or its zip", whatsapp.recognise,
           whatsapp.read),
    Format("irc", "a log of irssi, WeeChat, HexChat, mIRC or ZNC", irc.recognise, irc.read),
    Format("text", "a transcript or Markdown in which a speaker begins each message",
           transcript.recognise, transcript.read),
)  # fmt: skip
_MAP = Format("map", "JSON, JSON lines or CSV whose fields are named", lambda _: True, fields.read)
#: The formats that are told by the fields of a message alone.
_SHAPED = ("chatgpt", "claude", "gemini", "copilot", "open-webui", "librechat", "telegram",
           "discord")  # fmt: skip
_FIELDS = fields.FIELDS
_BY_NAME = {each.name: each for each in FORMATS}
_NAMES = ", ".join(_BY_NAME)
_CONVERSATIONS = re.compile(r"conversations[-_\d]*\.json")
#: The files of claude.ai's export that are read beside its conversations.
_BESIDE = ("projects.json", "memories.json")
_COMPANIONS = (*_BESIDE, "user.json", "users.json", "chat.html", "message_feedback.json",
               "shared_conversations.json", "shopping.json")  # fmt: skip
#: The endings of files in a folder that are opened; one that is packed is refused with advice.
_READABLE = (".json", ".jsonl", ".ndjson", ".txt", ".log", ".weechatlog", ".md", ".csv", ".html",
             ".gz", ".tgz", ".z", ".bz2", ".xz", ".zst", ".lz4", ".tar", ".7z", ".rar")  # fmt: skip


def read_chats(
    path: str | PathLike[str],
    format: str | None = None,  # noqa: A002 - the word for it
    *,
    branches: Branches = "forks",
    assistants: Collection[str] = (),
    speakers: Collection[str] = (),
    timezone: str | tzinfo | None = None,
    dates: DateOrder | None = None,
    fields: Mapping[str, str] | None = None,
) -> Iterator[Conversation]:
    """Yield the conversations of a file, a folder or a zip archive, one at a time.

    The format is recognised; ``format`` names one of ``FORMATS`` instead. With ``branches="skip"``
    only the current branch of each conversation is read. ``assistants`` are the speakers that are
    not people. ``speakers`` are those of a plain transcript, where they cannot be guessed.
    ``timezone`` is that of times that name none, UTC by default. ``dates`` is the order of day,
    month and year in a WhatsApp chat, which is guessed by default. ``fields`` says where any other
    JSON, JSON lines or CSV holds ``text``, and if it does ``sender``, ``time`` and ``key``: paths
    of field names with dots between, such as ``{"sender": "author.name", "text": "content"}``.

    What is damaged or not understood is left out and counted in ``unread`` of the conversation
    before it. Raises UsageError for a wrong argument at once, and FileError where nothing
    can be read. Every message has a key, so that it can be appended again without harm.
    """
    if format is not None and format not in _BY_NAME:
        raise UsageError(f"unknown format; use one of {_NAMES}")
    if branches not in ("forks", "skip"):
        raise UsageError('branches must be "forks" or "skip"')
    if dates not in (None, "dmy", "mdy", "ymd"):
        raise UsageError('dates must be "dmy", "mdy" or "ymd"')
    for what, names in (("assistants", assistants), ("speakers", speakers)):
        if isinstance(names, str) or not all(isinstance(name, str) for name in names):
            raise UsageError(f"{what} must be a collection of names")
    if fields is not None and (format is not None or not (
        isinstance(fields, Mapping) and {"text"} <= set(fields) <= set(_FIELDS)
        and all(isinstance(path, str) and path for path in fields.values())
    )):  # fmt: skip
        raise UsageError(
            f"fields must map text and any of {', '.join(_FIELDS)} to paths; omit format"
        )
    options = Options(
        branches=branches,
        assistants=frozenset(map(str.casefold, assistants)),
        speakers=frozenset(map(str.casefold, speakers)),
        zone=_zone(timezone),
        zone_given=timezone is not None,
        dates=dates,
        fields=fields,
    )
    named = _MAP if fields is not None else None if format is None else _BY_NAME[format]
    return _read(Path(path), named, options)


def _zone(zone: str | tzinfo | None) -> tzinfo:
    if zone is None:
        return UTC
    if isinstance(zone, tzinfo):
        return zone
    try:
        return zoneinfo.ZoneInfo(zone)
    except (ValueError, TypeError, OSError, zoneinfo.ZoneInfoNotFoundError):
        end = f"/{zone}".casefold().replace(" ", "_")
        known = (each for each in zoneinfo.available_timezones() if each.casefold().endswith(end))
        raise UsageError(
            "timezone is unknown here; it must be a name such as "
            f'"{min(known, default="Europe/Berlin")}"'
        ) from None


def _read(path: Path, named: Format | None, options: Options) -> Iterator[Conversation]:
    notes = Notes()
    before: Conversation | None = None
    for part in (part for export in exports_of(path, notes) for part in _parts(export)):
        for conversation in _conversations(part, named, options):
            if before is not None:
                yield before
            before = _noted(conversation, notes)
        if before is not None:
            before = _noted(before, notes)
    if before is not None:
        yield before
        return
    reasons = notes.reasons() or ["it holds no messages"]
    if len(reasons) == 1 and reasons[0].startswith(path.name):
        raise FileError(reasons[0])
    raise FileError(f"{path.name}: nothing can be read; {'; '.join(reasons[:3])}")


def _noted(conversation: Conversation, notes: Notes) -> Conversation:
    """Return a conversation with what was counted since the last one."""
    assumed, missed = notes.take()
    return replace(
        conversation,
        notes=dict(Counter(conversation.notes) + Counter(assumed)),
        unread=dict(Counter(conversation.unread) + Counter(missed)),
    )


def _recognised(head: Head) -> Format | None:
    """Return the format of a file; for JSON of no format, that of the messages inside it."""
    inside = replace(head, values=tuple(nested_objects(list(head.values))))
    asked = [(form, head) for form in FORMATS] + [(_BY_NAME[name], inside) for name in _SHAPED]
    return next((form for form, looked in asked if form.recognise(looked)), None)


def _why(head: Head, name: str) -> str:
    """Return why a file is of no format."""
    if head.broken.startswith(name):
        return head.broken
    empty = "" if any(head.values) or head.lines else "it holds no messages"
    unknown = f"it is of no known format; these can be imported: {_NAMES}"
    return f"{name}: {head.broken or empty or _looks_like(head) or unknown}"


def _parts(export: Export) -> Iterator[Export]:
    """Yield the files that belong together: those of one export, else each by itself."""
    slacks = slack.roots(export)
    chats = {f.parts[:-1] for f in export.files if _CONVERSATIONS.fullmatch(f.parts[-1])}
    roots = sorted(chats | slacks)
    groups: dict[tuple[str, ...], list[File]] = {}
    alone: list[File] = []
    for file in export.files:
        name = file.parts[-1]
        if "__MACOSX" in file.parts or name.startswith("._"):
            continue  # what macOS adds beside the files
        root = next((each for each in roots if file.parts[: len(each)] == each), None)
        # A folder of downloads may hold other chats beside those of an export.
        is_export = _CONVERSATIONS.fullmatch(name) or name in _COMPANIONS or root in slacks
        if root is not None and (is_export or export.stem or not name.lower().endswith(_READABLE)):
            groups.setdefault(root, []).append(file)
        elif len(export.files) == 1 or name.lower().endswith(_READABLE):
            alone.append(file)
        else:
            file.notes.note("files that are no text left out")
    for root, files in groups.items():
        yield Export("/".join(root) or export.stem, tuple(files))
    for file in alone:
        stem = export.stem if len(alone) == 1 and not groups else ""
        yield Export(stem or str(PurePosixPath(file.name).with_suffix("")), (file,))


def _conversations(
    export: Export, named: Format | None, options: Options
) -> Iterator[Conversation]:
    """Yield the conversations of files that belong together, and say what seems wrong in them."""
    notes = export.first.notes
    exports = named
    if len(export.files) > 1:
        if named in (None, _BY_NAME["slack"]) and slack.roots(export):
            exports = _BY_NAME["slack"]
        else:
            files = [f for f in export.files if _CONVERSATIONS.fullmatch(f.parts[-1])
                    or f.parts[-1] in _BESIDE]  # fmt: skip
            if n_others := len(export.files) - len(files):
                notes.note("files beside the conversations left out", n_others)
            files.sort(key=lambda file: file.parts[-1] in _BESIDE)
            export = replace(export, files=tuple(files))
    name = export.first.name if len(export.files) == 1 else export.stem or export.first.name
    try:
        head = head_of(export.first) if exports is None else Head("text")
        exports = exports or _recognised(head)
        if exports is None:
            notes.miss("files that cannot be read", _why(head, name))
            return
        before, count, speakers = notes.missed, 0, set[str]()
        for conversation in exports.read(export, options):
            count += len(conversation.messages)
            speakers.update(each.name or each.role for each in conversation.messages)
            yield conversation
        missed = notes.missed - before
        if count and missed > 2 and missed * 5 >= missed + count:
            notes.miss("files of which a fifth or more was not understood", name)
        if count > 3 and len(speakers) == 1:
            notes.miss("files in which one speaker says everything", name)
    except (FileError, InvalidMessageError) as error:
        notes.miss("files that cannot be opened", str(error))


#: Fields by which JSON is known, each with whose it is and how ``--map`` reads it.
_JSON = (
    ("messages.sender_name", "Messenger's or Instagram's JSON",
     "sender=sender_name,text=content,time=timestamp_ms"),
    ("messages.senderName", "Messenger's JSON of encrypted chats",
     "sender=senderName,text=text,time=timestamp"),
    ("messages.created_date", "Google Chat's JSON",
     "sender=creator.name,text=text,time=created_date,key=message_id"),
    ("conversations.MessageList", "Skype's JSON",
     "sender=from,text=content,time=originalarrivaltime"),
    ("room_name", "a room exported from Element",
     "sender=sender,text=content.body,time=origin_server_ts,key=event_id"),
)  # fmt: skip
_UNKNOWN_JSON = "this is JSON of another program; --map sender=…,text=…,time=… says how to read it"
#: How texts begin, each with whose they are.
_TEXTS = (
    (r"\s*<(?:!doctype|html|div)", "a web page; import the JSON of the same export instead"),
    (r"\w+[,;\t]\w+[,;\t]", "CSV; --map sender=…,text=…,time=… says how to read it"),
)


def _looks_like(head: Head) -> str:
    """Return what a file seems to be and what may be done, "" where nothing is known."""
    for value in head.objects[:1]:
        known = (row for row in _JSON if leads(value, row[0]))
        named = (f"this is {what}; --map {mapped} reads it" for _, what, mapped in known)
        return next(named, _UNKNOWN_JSON)
    for start, what in _TEXTS if head.lines else ():
        if re.match(start, head.lines[0], re.IGNORECASE):
            return f"this looks like {what}"
    return ""
