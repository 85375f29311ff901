"""Calls that a type checker must refuse, a line each; ``.ci/package`` counts them."""

from __future__ import annotations

from hiermem import Memory, Message


def wrong(memory: Memory) -> None:
    memory.session("s").context(max_tokens="4k")
    memory.session("s").append(Message.user(7))
    memory.session("s").no_such_call()
    memory.search(["a", "list"])
