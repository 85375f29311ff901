"""Reads sessions of Gemini CLI, and Gemini's activity as Google Takeout exports it (JSON)."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator

from hiermem.errors import InvalidMessageError
from hiermem.importers.chats import Chat, Item, Shape, items_of
from hiermem.importers.draft import Draft, Options, kind_name, moment, name_of, objects, text_at
from hiermem.types import Message, ToolCall

_ROLES = {"user": "user", "gemini": "assistant", "model": "assistant"}
_SILENT = ("info", "error", "warning")
_HEADERS = ("Gemini Apps", "Gemini", "Bard")
_BREAK = re.compile(r"<(?:br|/p|/li|/h\d|/div|/tr|/pre)\b[^>]*>", re.IGNORECASE)
_TAG = re.compile(r"<[^>]{0,2000}>")


def _chats(value: Item, draft: Draft) -> Iterator[Chat]:
    if "activities" in value:
        listed = sorted(value["activities"], key=lambda each: str(each.get("time")))
        yield Chat(items_of(listed, draft), "gemini-activity", "Gemini")
        return
    items = items_of(value.get("messages"), draft)
    yield Chat(items, value.get("sessionId"), created=moment(value.get("startTime")))


def _messages(draft: Draft, chat: Chat, name: str, _options: Options) -> Iterator[Message]:
    item = chat.items[name]
    if "header" in item:
        yield from _activity(item, draft)
        return
    kind, at = item.get("type"), moment(item.get("timestamp"))
    if kind in _SILENT:
        draft.note("system lines left out")
        return
    role = _ROLES.get(kind) if isinstance(kind, str) else None
    if role is None:
        raise InvalidMessageError(f"type is {kind_name(kind)}; it must be user or gemini")
    text = _text(item.get("content"))
    if item.get("thoughts"):
        draft.note("reasoning left out")
    if role == "user":
        yield from [Message.user(text, created_at=at)] if text.strip() else []
        return
    given = [each for each in objects(item.get("toolCalls")) if text_at(each, "name")]
    calls = tuple(
        ToolCall(text_at(each, "id") or f"{name}-{number}", name_of(each["name"]) or "tool",
                 json.dumps(each.get("args") or {}, ensure_ascii=False))
        for number, each in enumerate(given)
    )  # fmt: skip
    if text.strip() or calls:
        yield Message.assistant(text, tool_calls=calls, created_at=at)
    for call, each in zip(calls, given, strict=True):
        shown = text_at(each, "resultDisplay") or _result(each.get("result"))
        yield Message.tool(shown, tool_call_id=call.id, name=call.name, created_at=at)


def _text(content: object) -> str:
    """Return a text, or that of parts."""
    parts = content if isinstance(content, list) else [content]
    found = [part if isinstance(part, str) else text_at(part, "text") or "" for part in parts]
    return "\n".join(text for text in found if text)


def _result(given: object) -> str:
    texts = [text_at(each, "functionResponse.response.output") for each in objects(given)]
    return "\n".join(text for text in texts if text)


def _activity(item: Item, draft: Draft) -> Iterator[Message]:
    """Yield the prompt and the answer of an activity, of which no conversation is known."""
    title, at = text_at(item, "title") or "", moment(item.get("time"))
    answers = [text_at(each, "html") or "" for each in objects(item.get("safeHtmlItem"))]
    if not answers and not title.startswith("Prompted "):
        draft.note("activities that are no prompts left out")
        return
    yield Message.user(title.removeprefix("Prompted "), created_at=at)
    answer = html.unescape(_TAG.sub("", _BREAK.sub("\n", "\n".join(answers)))).strip()
    if answer:
        yield Message.assistant(answer, created_at=at)


SHAPE = Shape(
    "gemini",
    lambda value: "sessionId" in value and isinstance(value.get("messages"), list),
    lambda value: (
        (value.get("header") in _HEADERS and {"title", "time"} <= value.keys())
        or ({"id", "timestamp", "content"} <= value.keys() and value.get("type") in _ROLES)
    ),
    _chats,
    lambda items: {"activities" if "header" in items[0] else "messages": items},
    _messages,
    lambda item: moment(item.get("timestamp")),
)
