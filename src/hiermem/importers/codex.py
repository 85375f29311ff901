"""Reads a session of Codex: a JSONL file of items of the Responses interface, with their times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from hiermem.convert import from_responses
from hiermem.importers.draft import Draft, Keyed, Options, id_of, kind_name, moment
from hiermem.importers.files import Export, Head, objects_of
from hiermem.types import Message, TextPart
from hiermem.types.conversation import Conversation
from hiermem.types.reading import as_mapping

_LINES = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
#: How the texts begin that the program sends as the user's.
_INSERTED = ("<environment_context>", "<user_instructions>", "<permissions", "<turn_aborted>",
             "# AGENTS.md instructions", "<INSTRUCTIONS>", "<collaboration_mode>")  # fmt: skip


def recognise(head: Head) -> bool:
    """Return whether the first line is the session's, in the present form or the earlier one."""
    first = head.first if head.kind == "lines" else {}
    if first.get("type") in _LINES and isinstance(first.get("payload"), dict):
        return True
    return {"id", "timestamp", "instructions"} <= first.keys() and "type" not in first


def read(export: Export, _options: Options) -> Iterator[Conversation]:
    """Yield the one conversation of the file."""
    file = export.first
    draft = Draft(file.name)
    session: object = None
    found: list[Keyed] = []
    for number, (place, line) in enumerate(objects_of(file)):
        kind, payload = line.get("type"), line.get("payload")
        if number == 0 and kind not in _LINES:  # the earlier form: items without an envelope
            session = line.get("id")
            continue
        if kind not in _LINES:
            payload, kind = line, "response_item" if kind is not None else "record"
        item = as_mapping(payload, where=f"{place}.payload")
        if kind == "session_meta":
            session = session or item.get("id")
        elif kind == "compacted":
            draft.note("summaries of a compacted context left out")
        elif kind == "response_item":
            found.extend(_messages(item, line, draft))
    draft.add_log(found)
    yield from draft.finished("codex", id_of(session, export.stem))


def _messages(item: dict[str, Any], line: dict[str, Any], draft: Draft) -> Iterator[Keyed]:
    kind = item.get("type")
    if kind == "reasoning":
        draft.note("reasoning left out")
        return
    if kind in ("ghost_snapshot", "compaction", "item_reference"):
        draft.note(f"items of the type {kind_name(kind)} left out")
        return
    at = moment(line.get("timestamp"))
    for message in map(_plain, from_responses([item])):
        text = message.content if isinstance(message.content, str) else ""
        if message.role == "user" and text.lstrip().startswith(_INSERTED):
            draft.note("messages that the program inserted left out")
        elif message.content or message.tool_calls or message.role == "tool":
            given = item.get("id")
            yield replace(message, created_at=at), given if isinstance(given, str) else None


def _plain(message: Message) -> Message:
    """Return a message whose texts are one text, as they were said."""
    parts = message.content
    if isinstance(parts, str) or not all(isinstance(part, TextPart) for part in parts):
        return message
    text = "\n".join(part.text for part in parts if isinstance(part, TextPart))
    return replace(message, content=text, metadata={})
