"""Reads ChatGPT's export: ``conversations.json``, each conversation a tree of messages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from hiermem.errors import InvalidMessageError
from hiermem.importers.chats import Chat, Item, Shape, items_of
from hiermem.importers.draft import Draft, Options
from hiermem.importers.values import found_at, kind_name, name_of, objects, text_at
from hiermem.types import Message, ToolCall
from hiermem.types.message import as_list, as_mapping

_ROLES = ("user", "assistant", "system", "tool")
#: Contents that are not part of what was said, with their notes.
_LEFT_OUT = {
    "thoughts": "reasoning left out",
    "reasoning_recap": "reasoning left out",
    "user_editable_context": "custom instructions left out",
    "model_editable_context": "saved memories left out",
}
#: Contents of which some hold nothing.
_EMPTY = ("code", "text", "execution_output", "tether_browsing_display")
#: The characters of a tool call's id.
_ID = 200
#: The characters around what the application shows as a link; inside is a name for it.
_CITED = re.compile("\ue200(?:file)?cite[^\ue200\ue201]{0,2000}\ue201")
#: The earlier form of such a mark; the name of a file in it is kept.
_SOURCE = re.compile("\u3010[\\d:]{1,20}\u2020([^\u3010\u3011]{0,200})\u3011")
#: Fields that hold the text of contents other than plain ones.
_TEXTS = ("text", "result", "summary", "content", "output_str", "title")


def _chats(value: Item, draft: Draft) -> Iterator[Chat]:
    items = items_of(value.get("mapping"), draft)
    parents = {name: text_at(node, "parent") for name, node in items.items()}
    own = text_at(value, "conversation_id") or text_at(value, "id")
    title, created, current = map(value.get, ("title", "create_time", "current_node"))
    yield Chat(items, own, title, created, parents, current)


def _messages(draft: Draft, chat: Chat, name: str, _options: Options) -> Iterator[Message]:
    """Yield the message of a node, if it holds one that was shown."""
    node = chat.items[name]
    if node.get("message") is None:
        return
    message = as_mapping(node["message"], where="message")
    role = text_at(message, "author.role")
    text = _shown(draft, message, role)
    if not text:
        return
    parent = text_at(node, "parent")
    if _calls_tool(message):
        call = ToolCall(name[:_ID], name_of(message["recipient"]) or "tool", _arguments(text))
        yield Message.assistant(tool_calls=(call,))
    elif role == "tool":
        called = parent and _calls_tool(chat.items.get(parent, {}).get("message"))
        call_id = parent[:_ID] if parent and called else None
        tool = name_of(found_at(message, "author.name"))
        yield Message("tool", text, tool_call_id=call_id, name=tool)
    else:
        yield Message(cast("Any", role), text)


def _shown(draft: Draft, message: Mapping[str, Any], role: str | None) -> str:
    """Return the text of a message as the application shows it, "" where it shows none."""
    meta = message.get("metadata")
    meta = meta if isinstance(meta, dict) else {}
    text = _content(draft, message.get("content"), meta)
    if text and (message.get("weight") == 0 or meta.get("is_visually_hidden_from_conversation")):
        draft.note("hidden messages left out")
        return ""
    if text and role not in _ROLES:
        raise InvalidMessageError(f"author.role is {kind_name(role)}; it must be a known one")
    return text


def _calls_tool(message: object) -> bool:
    """Return whether a message is the assistant's to a tool."""
    addressed = text_at(message, "recipient") not in (None, "all", "assistant", "user")
    return addressed and text_at(message, "author.role") == "assistant"


def _arguments(text: str) -> str:
    """Return the text of a call as JSON: as it is, or as the one argument."""
    try:
        if isinstance(json.loads(text), dict):
            return text
    except (ValueError, RecursionError):
        pass
    return json.dumps({"input": text}, ensure_ascii=False)


def _content(draft: Draft, content: object, meta: Mapping[str, Any]) -> str:
    """Return the text of a content, "" where it is empty or left out."""
    if content is None or isinstance(content, str):
        return content or ""
    found = as_mapping(content, where="content")
    kind = found.get("content_type")
    if isinstance(kind, str) and kind in _LEFT_OUT:
        draft.note(_LEFT_OUT[kind])
        return ""
    pieces = [f"[quoted] {meta['targeted_reply']}"] if text_at(meta, "targeted_reply") else []
    pieces += _attachments(meta, pictured=bool(objects(found.get("parts"))))
    if found.get("parts") is not None:
        parts = as_list(found["parts"], where="content.parts")
        shown = (part if isinstance(part, str) else _part(draft, part) for part in parts)
        pieces += [piece for piece in shown if piece.strip()]
    else:
        texts = [found[name] for name in _TEXTS if isinstance(found.get(name), str)]
        if not texts and kind not in _EMPTY:
            draft.miss(f"contents of the type {kind_name(kind)} not understood")
        pieces += [text for text in texts[:1] if text.strip()]
        if kind == "tether_quote" and isinstance(found.get("url"), str):
            pieces.append(found["url"])
    return _as_shown("\n".join(pieces), meta)


def _as_shown(text: str, meta: Mapping[str, Any]) -> str:
    """Return a text with links in the place of marks that only the application can read."""
    if "\ue200" not in text and "\u3010" not in text:
        return text
    for reference in objects(meta.get("content_references")):
        matched = reference.get("matched_text")
        if isinstance(matched, str) and matched[:1] in ("\ue200", "\u3010"):
            shown = reference.get("alt")
            text = text.replace(matched, shown if isinstance(shown, str) else _links(reference))
    text = _SOURCE.sub(lambda match: "" if match[1] == "source" else f"[{match[1]}]", text)
    return _CITED.sub("", text)


def _links(reference: Item) -> str:
    """Return the sources of a search as links."""
    sources = [reference, *objects(reference.get("items")), *objects(reference.get("sources"))]
    found = {each["url"]: text_at(each, "title") for each in sources if text_at(each, "url")}
    return " ".join(f"([{title or url}]({url}))" for url, title in found.items())


def _part(draft: Draft, part: object) -> str:
    """Return what stands for a part that is not text; the export holds images as files."""
    if part is None:
        return ""
    if not isinstance(part, dict):
        draft.miss(f"parts of the type {kind_name(part)} not understood")
        return ""
    kind = part.get("content_type")
    if isinstance(part.get("text"), str):  # the transcript of speech, mostly
        return cast("str", part["text"])
    if kind == "image_asset_pointer":
        return f"[image: {(text_at(part, 'asset_pointer') or '?').rpartition('/')[2]}]"
    if isinstance(kind, str) and kind.endswith("asset_pointer"):
        return ""  # the sound of a transcript
    draft.miss(f"parts of the type {kind_name(kind)} not understood")
    return ""


def _attachments(meta: Mapping[str, Any], *, pictured: bool) -> Iterator[str]:
    """Yield the names of files; images that a part of the content stands for have none."""
    for item in objects(meta.get("attachments")):
        kind = str(item.get("mime_type") or item.get("mimeType") or "")
        if isinstance(item.get("name"), str) and not (pictured and kind.startswith("image/")):
            yield f"[file: {item['name']}]"


SHAPE = Shape(
    "chatgpt",
    lambda value: (
        ("mapping" in value and "inserted_at" not in value)
        or {"current_node", "title"} <= value.keys()
    ),
    lambda value: (
        {"message", "parent"} <= value.keys()
        and (isinstance(value["message"], dict) and "author" in value["message"])
    ),
    _chats,
    lambda nodes: {"mapping": {text_at(n, "id") or f"#{k}": n for k, n in enumerate(nodes)}},
    _messages,
    lambda node: found_at(node, "message.create_time"),
)
