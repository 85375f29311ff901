"""Reads sessions of Gemini CLI, and Gemini's activity as Google Takeout exports it (JSON)."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator

from hiermem.data import word_lists
from hiermem.errors import InvalidMessageError
from hiermem.importers.beside import beside, files_of
from hiermem.importers.chats import Chat, Item, Shape, items_of
from hiermem.importers.draft import Draft, Options
from hiermem.importers.values import kind_name, name_of, objects, text_at
from hiermem.types import Message, ToolCall

_ROLES = {"user": "user", "gemini": "assistant", "model": "assistant"}
_SILENT = ("info", "error", "warning")
#: The brands in the headers of activities, the other words of which are a language's.
_HEADER = re.compile(r"\b(?:gemini|bard)\b", re.IGNORECASE)
#: What Google puts before a prompt; a colon ends it in some languages.
_ASKED = (re.escape(words) for words in sorted(word_lists("export_words")["asked"], reverse=True))
_PROMPTED = re.compile(
    "|".join(
        f"{words[:-1]}\\s?[:\uff1a]\\s*" if words[-1] == ":" else rf"{words}\s+" for words in _ASKED
    ),
    re.IGNORECASE,
)
_BREAK = re.compile(r"<(?:br|/p|/li|/h\d|/div|/tr|/pre)\b[^>]*>", re.IGNORECASE)
_TAG = re.compile(r"<[^>]{0,2000}>")


def _chats(value: Item, draft: Draft) -> Iterator[Chat]:
    if "activities" in value:
        listed = sorted(value["activities"], key=lambda each: str(each.get("time")))
        titles = {text_at(item, "title") or "" for item in listed if item.get("safeHtmlItem")}
        # In a language that is not known, a prompt stands behind what all have before a colon.
        first = re.match(r"[^:\uff1a]*[:\uff1a]\s*", min(titles)) if len(titles) > 1 else None
        before = first.group() if first is not None else ""
        before = before if all(title.startswith(before) for title in titles) else ""
        activities = [{**item, "before": before} for item in listed]
        yield Chat(items_of(activities, draft), "gemini-activity", "Gemini")
        return
    items = items_of(value.get("messages"), draft)
    yield Chat(items, value.get("sessionId"), created=value.get("startTime"))


def _messages(draft: Draft, chat: Chat, name: str, _options: Options) -> Iterator[Message]:
    item = chat.items[name]
    if "header" in item:
        yield from _activity(item, draft)
        return
    kind = item.get("type")
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
        yield from [Message.user(text)] if text.strip() else []
        return
    tool_calls = [used for used in objects(item.get("toolCalls")) if text_at(used, "name")]
    calls = tuple(
        ToolCall(text_at(used, "id") or f"{name}-{number}", name_of(used["name"]) or "tool",
                 json.dumps(used.get("args") or {}, ensure_ascii=False))
        for number, used in enumerate(tool_calls)
    )  # fmt: skip
    if text.strip() or calls:
        yield Message.assistant(text, tool_calls=calls)
    for call, used in zip(calls, tool_calls, strict=True):
        shown = text_at(used, "resultDisplay") or _result(used.get("result"))
        yield Message.tool(shown, tool_call_id=call.id, name=call.name)


def _text(content: object) -> str:
    """Return a text, or that of parts, with the names of files."""
    texts: list[str] = []
    for part in content if isinstance(content, list) else [content]:
        texts.append(part if isinstance(part, str) else text_at(part, "text") or "")
        if (file := text_at(part, "fileData.fileUri")) is not None:
            texts += files_of([file])
    return "\n".join(text for text in texts if text)


def _result(result: object) -> str:
    """Return what a tool returned, or its error."""
    path = "functionResponse.response"
    texts = [text_at(each, f"{path}.output") or text_at(each, f"{path}.error")
             for each in objects(result)]  # fmt: skip
    return "\n".join(text for text in texts if text)


def _activity(item: Item, draft: Draft) -> Iterator[Message]:
    """Yield the prompt and the answer of an activity, of which no conversation is known."""
    title = text_at(item, "title") or ""
    before = _PROMPTED.match(title)
    answers = [text_at(each, "html") or "" for each in objects(item.get("safeHtmlItem"))]
    leading = before.group() if before is not None else item["before"]
    if not answers and not (leading and title.startswith(leading)):
        draft.note("activities that are no prompts left out")
        return
    prompt = "\n".join(piece for piece in (title.removeprefix(leading), *beside(item)) if piece)
    yield from [Message.user(prompt)] if prompt.strip() else []
    answer = html.unescape(_TAG.sub("", _BREAK.sub("\n", "\n".join(answers)))).strip()
    if answer:
        yield Message.assistant(answer)


SHAPE = Shape(
    "gemini",
    lambda value: "sessionId" in value and isinstance(value.get("messages"), list),
    lambda value: (
        ({"title", "time"} <= value.keys() and _HEADER.search(str(value.get("header"))) is not None)
        or ({"id", "timestamp", "content"} <= value.keys() and value.get("type") in _ROLES)
    ),
    _chats,
    lambda items: {"activities" if "header" in items[0] else "messages": items},
    _messages,
    lambda item: item.get("timestamp") or item.get("time"),
)
