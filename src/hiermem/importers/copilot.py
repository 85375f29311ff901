"""Reads a chat of GitHub Copilot that VS Code exported as JSON."""

from __future__ import annotations

from collections.abc import Iterator

from hiermem.importers.chats import Chat, Item, Shape, items_of
from hiermem.importers.draft import Draft, Options, moment, objects, text_at
from hiermem.types import Message


def _chats(value: Item, draft: Draft) -> Iterator[Chat]:
    items = items_of(value.get("requests"), draft, lambda item: item.get("requestId"))
    yield Chat(items, value.get("sessionId"), value.get("customTitle"))


def _messages(draft: Draft, chat: Chat, name: str, _options: Options) -> Iterator[Message]:
    """Yield a request and the answer to it."""
    request = chat.items[name]
    at, message = moment(request.get("timestamp")), request.get("message")
    asked = message if isinstance(message, str) else text_at(message, "text") or ""
    if asked.strip():
        yield Message.user(asked, created_at=at)
    pieces: list[str] = []
    for part in objects(request.get("response")):
        if part.get("kind") in (None, "markdownContent", "markdownVuln"):
            pieces.append(text_at(part, "value") or text_at(part, "content.value") or "")
        elif part["kind"] == "inlineReference":
            pieces.append(
                f"`{text_at(part, 'name') or text_at(part, 'inlineReference.name') or '?'}`"
            )
        else:
            draft.note("steps of the program left out")
    answer = "".join(pieces)
    if answer.strip():
        yield Message.assistant(answer, created_at=at)


SHAPE = Shape(
    "copilot",
    lambda value: "responderUsername" in value and isinstance(value.get("requests"), list),
    lambda value: {"requestId", "message", "response"} <= value.keys(),
    _chats,
    lambda requests: {"requests": requests},
    _messages,
    lambda request: moment(request.get("timestamp")),
)
