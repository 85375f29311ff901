"""Reads ChatGPT's export: ``conversations.json``, each conversation a tree of messages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from hiermem.importers.draft import Draft, Options, id_of, kind_name, moment, name_of, objects
from hiermem.importers.files import Export, Head, objects_of
from hiermem.importers.tree import branches_of
from hiermem.types import Message, ToolCall
from hiermem.types.conversation import Conversation
from hiermem.types.reading import as_list, as_mapping, text_of

_ROLES = ("user", "assistant", "system", "tool")
#: Contents that are not part of what was said, with their notes.
_LEFT_OUT = {
    "thoughts": "reasoning left out",
    "reasoning_recap": "reasoning left out",
    "user_editable_context": "custom instructions left out",
    "model_editable_context": "saved memories left out",
}
#: The characters of a tool call's id.
_ID = 200
#: The characters around what the application shows as a link; inside is a name for it.
_CITED = re.compile("\ue200(?:file)?cite[^\ue200\ue201]{0,2000}\ue201")
#: Fields that hold the text of contents other than plain ones.
_TEXTS = ("text", "result", "summary", "content", "title")


def recognise(head: Head) -> bool:
    """Return whether a file's first value is a conversation of this export."""
    return "mapping" in head.first


def read(export: Export, options: Options) -> Iterator[Conversation]:
    """Yield each conversation, its current path first, then its other branches."""
    for place, value in objects_of(*export.files):
        yield from _conversation(value, place, options)


def _conversation(given: dict[str, Any], place: str, options: Options) -> Iterator[Conversation]:
    where = f"{place}.mapping"
    nodes = {
        name: as_mapping(node, where=f"{where}, node {number}")
        for number, (name, node) in enumerate(as_mapping(given.get("mapping"), where=where).items())
    }
    parents = {name: _text(node.get("parent")) for name, node in nodes.items()}
    own = _text(given.get("conversation_id")) or _text(given.get("id"))
    draft = Draft(place)

    def add(name: str) -> list[str]:
        made = _add(draft, name, nodes, parents[name], place)
        return [] if made is None else [made]

    return branches_of(
        draft,
        parents,
        add,
        current=_text(given.get("current_node")),
        about=Conversation(
            id_of(own, f"chatgpt-{next(iter(nodes), place)}"),
            name_of(given.get("title")),
            (),
            format="chatgpt",
        ),
        created=moment(given.get("create_time")),
        options=options,
    )


def _add(
    draft: Draft,
    name: str,
    nodes: Mapping[str, Mapping[str, Any]],
    parent: str | None,
    place: str,
) -> str | None:
    """Add the message of a node, if it holds one that was shown; return its key."""
    where, node = f"{place}, a message", nodes[name]
    if node.get("message") is None:
        return None
    message = as_mapping(node["message"], where=where)
    author = as_mapping(message.get("author"), where=f"{where}.author")
    role = text_of(author, "role", where=f"{where}.author")
    text = _shown(draft, message, role, where)
    if not text:
        return None
    at = moment(message.get("create_time"))
    if _calls_tool(message):
        call = ToolCall(name[:_ID], name_of(message["recipient"]) or "tool", _arguments(text))
        return draft.add(Message.assistant(tool_calls=(call,), created_at=at), key=name)
    if role == "tool":
        called = parent is not None and _calls_tool(nodes.get(parent, {}).get("message"))
        result = Message.tool(
            text,
            tool_call_id=parent[:_ID] if parent and called else None,
            name=name_of(author.get("name")),
            created_at=at,
        )
        return draft.add(result, key=name)
    return draft.add(Message(cast("Any", role), text, created_at=at), key=name)


def _shown(draft: Draft, message: Mapping[str, Any], role: str, where: str) -> str:
    """Return the text of a message as the application shows it, "" where it shows none."""
    if role not in _ROLES:
        draft.note(f"messages of the role {kind_name(role)} left out")
        return ""
    meta = message.get("metadata")
    meta = meta if isinstance(meta, dict) else {}
    text = _content(draft, message.get("content"), meta, where)
    if message.get("weight") == 0 or meta.get("is_visually_hidden_from_conversation") is True:
        if text:
            draft.note("hidden messages left out")
        return ""
    return text


def _calls_tool(message: object) -> bool:
    """Return whether a message is the assistant's to a tool."""
    if not isinstance(message, dict) or not isinstance(message.get("author"), dict):
        return False
    recipient = message.get("recipient")
    addressed = isinstance(recipient, str) and recipient not in ("", "all", "assistant", "user")
    return addressed and message["author"].get("role") == "assistant"


def _arguments(text: str) -> str:
    """Return the text of a call as JSON: as it is, or as the one argument."""
    try:
        if isinstance(json.loads(text), dict):
            return text
    except (ValueError, RecursionError):
        pass
    return json.dumps({"input": text}, ensure_ascii=False)


def _content(draft: Draft, content: object, meta: Mapping[str, Any], where: str) -> str:
    """Return the text of a content, "" where it is empty or left out."""
    if content is None:
        return ""
    found = as_mapping(content, where=f"{where}.content")
    kind = found.get("content_type")
    if isinstance(kind, str) and kind in _LEFT_OUT:
        draft.note(_LEFT_OUT[kind])
        return ""
    pieces = [f"[file: {name}]" for name in _attachments(meta)]
    if "parts" in found:
        for part in as_list(found["parts"], where=f"{where}.content.parts"):
            piece = part if isinstance(part, str) else _part(draft, part)
            if piece.strip():
                pieces.append(piece)
    else:
        texts = [found[name] for name in _TEXTS if isinstance(found.get(name), str)]
        if not texts and kind not in ("code", "text", "execution_output"):
            draft.note(f"contents of the type {kind_name(kind)} not understood")
        pieces += [text for text in texts[:1] if text.strip()]
        if kind == "tether_quote" and isinstance(found.get("url"), str):
            pieces.append(found["url"])
    return _as_shown("\n".join(pieces), meta)


def _as_shown(text: str, meta: Mapping[str, Any]) -> str:
    """Return a text with links in the place of marks that only the application can read."""
    if "\ue200" not in text:
        return text
    for reference in objects(meta.get("content_references")):
        matched = reference.get("matched_text")
        if isinstance(matched, str) and "\ue200" in matched:
            shown = reference.get("alt")
            text = text.replace(matched, shown if isinstance(shown, str) else "")
    return _CITED.sub("", text)


def _part(draft: Draft, part: object) -> str:
    """Return what stands for a part that is not text; the export holds images as files."""
    if not isinstance(part, dict):
        draft.note(f"parts of the type {kind_name(part)} not understood")
        return ""
    kind = part.get("content_type")
    if isinstance(part.get("text"), str):  # the transcript of speech, mostly
        return cast("str", part["text"])
    if kind == "image_asset_pointer":
        pointer = part.get("asset_pointer")
        name = pointer.rpartition("/")[2] if isinstance(pointer, str) else "?"
        return f"[image: {name}]"
    if isinstance(kind, str) and kind.endswith("asset_pointer"):
        return ""  # the sound of a transcript
    draft.note(f"parts of the type {kind_name(kind)} not understood")
    return ""


def _attachments(meta: Mapping[str, Any]) -> list[str]:
    return [
        item["name"]
        for item in objects(meta.get("attachments"))
        if isinstance(item.get("name"), str)
        and not str(item.get("mime_type", "")).startswith("image/")
    ]


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
