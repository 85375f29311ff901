"""The conversation that ships with the library."""

from __future__ import annotations

from importlib.resources import as_file, files

from hiermem import Message
from hiermem.importers import read_chats


def bundled() -> list[Message]:
    """Return the conversation that ships with the library: five weeks of building one system."""
    with as_file(files("hiermem.data").joinpath("demo.jsonl")) as path:
        (conversation,) = read_chats(path, "messages")
    return list(conversation.messages)
