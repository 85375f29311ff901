"""Reads a session of Codex: a JSONL file of items of the Responses interface, with their times."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from hiermem.convert import from_responses
from hiermem.importers.draft import Draft, Keyed, Options, id_of
from hiermem.importers.files import Export, Head, objects_of
from hiermem.importers.values import kind_name, objects, text_at
from hiermem.types import Message, TextPart
from hiermem.types.message import Conversation, as_mapping

_LINES = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
#: How texts look that the program sends as the user's: an instruction, or all of it in a tag.
_INSERTED = re.compile(
    r"\s*(?:# AGENTS\.md instructions|<INSTRUCTIONS>|<permissions"
    r"|<(?P<tag>skill|[a-z]+(?:_[a-z]+)+)[ >](?=.*</(?P=tag)>\s*\Z))",
    re.DOTALL,
)
#: The events that hold what was said, without the signs between their words.
_EVENTS = {"usermessage": "user", "agentmessage": "assistant"}


def recognise(head: Head) -> bool:
    """Return whether one of the first lines is a session's, in the present form or the earlier."""
    return head.kind == "lines" and any(
        (line.get("type") in _LINES and isinstance(line.get("payload"), dict))
        or ({"id", "timestamp", "instructions"} <= line.keys() and "type" not in line)
        for line in head.objects
    )


def read(export: Export, options: Options) -> Iterator[Conversation]:
    """Yield the one conversation of the file."""
    file = export.first
    draft = Draft(file.name, file.notes)
    session: object = None
    keyed: list[tuple[str, Keyed]] = []
    for place, line in objects_of(file, part=lambda each: "payload" in each):
        kind, payload = line.get("type"), line.get("payload")
        if kind not in _LINES:  # the earlier form: items without an envelope
            if kind is None:
                session = session or line.get("id")
                continue
            kind, payload = "response_item", line
        with draft.reading(place):
            item = as_mapping(payload, where="payload")
            if kind == "session_meta":
                session = session or item.get("id")
            elif kind == "compacted":
                draft.note("summaries of a compacted context left out")
            elif kind in ("response_item", "event_msg"):
                read = _items if kind == "response_item" else _event
                for form, (message, own) in read(item, draft):
                    at = draft.time(line.get("timestamp"), options)
                    keyed.append((form, (replace(message, created_at=at), own)))
    # A session holds what was said as items, as events, or as both, which are the same then.
    forms = {form for form, (message, _) in keyed if message.content and message.role != "tool"}
    best = next((form for form in ("item", "completed", "event") if form in forms), "item")
    draft.add_log([each for form, each in keyed if form in (best, "item")])
    yield from draft.finished("codex", id_of(session, "codex", export.stem))


def _event(item: dict[str, Any], _draft: Draft) -> Iterator[tuple[str, Keyed]]:
    """Yield what an event says that was said."""
    form, inner = "event", item.get("item")
    if item.get("type") == "item_completed" and isinstance(inner, dict):
        form, item = "completed", inner
    role = _EVENTS.get(str(item.get("type")).replace("_", "").casefold())
    texts = [text_at(block, "text") or "" for block in objects(item.get("content"))]
    text = text_at(item, "message") or "\n".join(texts)
    if role is None or not text.strip() or _INSERTED.match(text):
        return
    make = Message.user if role == "user" else Message.assistant
    yield form, (make(text), text_at(item, "id"))


def _items(item: dict[str, Any], draft: Draft) -> Iterator[tuple[str, Keyed]]:
    kind = item.get("type")
    if kind == "reasoning":
        draft.note("reasoning left out")
        return
    if kind in ("ghost_snapshot", "compaction", "item_reference"):
        draft.note(f"items of the type {kind_name(kind)} left out")
        return
    for message in map(_plain, from_responses([item])):
        text = message.content if isinstance(message.content, str) else ""
        inserted = message.role == "user" and _INSERTED.match(text) is not None
        if inserted or message.role == "system":
            draft.note("messages that the program inserted left out")
        elif message.content or message.tool_calls or message.role == "tool":
            yield "item", (message, text_at(item, "id"))


def _plain(message: Message) -> Message:
    """Return a message whose texts are one text, as they were said."""
    parts = message.content
    if isinstance(parts, str) or not all(isinstance(part, TextPart) for part in parts):
        return message
    text = "\n".join(part.text for part in parts if isinstance(part, TextPart))
    return replace(message, content=text, metadata={})
