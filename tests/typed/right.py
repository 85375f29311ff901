"""What a user writes, and the types that it must have; ``.ci/package`` has it checked."""

from __future__ import annotations

from typing import assert_type

from hiermem import AsyncMemory, ContextSelection, Hit, Memory, Message
from hiermem.types import Evidence, UpdateReport


def blocking(path: str) -> None:
    with Memory.open(path, llm="openai:gpt-5-mini") as memory:
        memory.space("ada", person="Ada")
        session = memory.session("s", space="ada")
        assert_type(session.append(Message.user("Hello")), list[int])
        assert_type(session.append({"role": "assistant", "content": "Hi"}), list[int])
        assert_type(session.update(), UpdateReport)
        assert_type(session.context(4_000, query="Hello"), ContextSelection)
        assert_type(session.search("hello"), list[Hit])
        assert_type(memory.recall("hello", space="ada"), Evidence)


async def waiting(path: str) -> None:
    async with AsyncMemory.open(path) as memory, memory.worker():
        session = memory.session("s")
        assert_type(await session.append(Message.user("Hello")), list[int])
        assert_type(await session.context(4_000), ContextSelection)
