"""LangChain: a middleware that keeps whole conversations and bounds requests, and a retriever.

    agent = create_agent(model, tools, middleware=[HiermemMiddleware(memory)], checkpointer=saver)
    documents = HiermemRetriever(memory=memory).invoke("Which pump was loud?")

Needs the extra ``langchain``.
"""
# pyright: reportMissingImports=false

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from threading import Lock
from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    convert_to_messages,
    convert_to_openai_messages,
)
from langchain_core.retrievers import BaseRetriever
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field

from hiermem import Hit, Memory, Message, Session, UsageError
from hiermem.integrations.branches import checked, keep, outcome_of

__all__ = ["HiermemMiddleware", "HiermemRetriever"]

#: Conversations whose newest state is remembered, so that only what is new of it is read.
_REMEMBERED = 64
#: The most characters of an id that is a message's key.
_MOST_KEY = 512


class HiermemRetriever(BaseRetriever):
    """Returns the passages of all sessions that answer a query, as documents, by ``recall``.

    They are word for word, in the order they were said, in ``max_tokens`` together; with ``k``, at
    most the ``k`` best of them. ``filters`` are those of ``memory.recall``: ``space``,
    ``metadata``, ``since`` and the others. A document's metadata name its session, index, speaker,
    time and score.
    """

    memory: Memory
    max_tokens: int = 1_000
    k: int | None = None
    filters: dict[str, Any] = Field(default_factory=dict)

    def _get_relevant_documents(
        self, query: str, *, run_manager: Any, k: int | None = None
    ) -> list[Document]:
        passages = list(self.memory.recall(query, self.max_tokens, **self.filters))
        best = sorted(passages, key=lambda passage: -passage.score)[: k or self.k]
        return [_document(passage) for passage in passages if passage in best]

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: Any, k: int | None = None
    ) -> list[Document]:
        def found() -> list[Document]:
            return self._get_relevant_documents(query, run_manager=run_manager, k=k)

        return await outcome_of(found)


class HiermemMiddleware(AgentMiddleware):
    """Keeps the agent's messages in a memory and sends a context of at most ``max_tokens``.

    The session is that of the ``thread_id`` in the agent's configuration. The state of the graph
    stays as it is; only the request to the model is shorter. ``max_tokens`` counts the system
    prompt, the tools and all messages. A new session is a member of ``space``, which must exist.

    Where the state was rewound or edited, the conversation goes on in a fork at that message, and
    the metadata of the session ``thread_id`` name the fork as ``continues_in``. Messages that were
    removed from the beginning of the state stay in the session and in its contexts.

    Put it first: other middleware then sees the shorter request, and what it changes is sent.

    Raises UsageError where ``memory`` is not a Memory, and a run does so where its configuration
    has no ``thread_id``.
    """

    def __init__(
        self, memory: Memory, *, max_tokens: int = 8_000, space: str | None = None
    ) -> None:
        super().__init__()
        self._memory, self._space = checked(memory), space
        self._max_tokens = max_tokens
        self._lock = Lock()
        self._seen: dict[str, tuple[list[Any], Session, int]] = {}

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Store what is new, and call the model with a context."""
        return handler(request.override(messages=self._context(request)))

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """Store what is new, and call the model with a context."""
        messages = await outcome_of(self._context, request)
        return await handler(request.override(messages=messages))

    def after_model(self, state: Any, runtime: Any) -> None:
        """Store the model's answer."""
        self._keep(state["messages"], runtime)

    async def aafter_model(self, state: Any, runtime: Any) -> None:
        """Store the model's answer."""
        await outcome_of(self._keep, state["messages"], runtime)

    def _context(self, request: Any) -> list[Any]:
        """Return the messages to send: leading system messages, records, the newest messages."""
        # The state, not the request: what other middleware changes for one request is no rewrite.
        given: list[Any] = list(_repaired(request.state["messages"], request.messages))
        session = self._keep(given, request.runtime)
        lead = given[: _leading(given)]
        system = [*([request.system_message] if request.system_message else ()), *lead]
        context = session.context(
            self._max_tokens,
            system="\n\n".join(each.text for each in system) if system else None,
            tools=[
                each if isinstance(each, dict) else convert_to_openai_tool(each)
                for each in request.tools
            ],
        )
        own = {each.id: each for each in given if each.id is not None}
        shown = list(lead)
        for block in context.blocks:
            message = block.shown
            if message is None:
                shown += convert_to_messages([{"role": "user", "content": block.text}])
                continue
            mine = own.get(message.key)
            as_stored = block.message is not None and message is block.message.message
            if as_stored and mine is not None and _read([mine])[0].content == message.content:
                shown.append(mine)  # with what only its provider reads
            else:
                shown.append(_written(message))
        if given and isinstance(given[-1], HumanMessage) and not given[-1].content:
            shown.append(given[-1])  # a context shows nothing of it, but it ends the last answer
        return shown

    def _keep(self, messages: Sequence[Any], runtime: Any) -> Session:
        """Make the thread's session equal to the state, and return the session that holds it."""
        thread = getattr(runtime.execution_info, "thread_id", None)
        if thread is None:
            raise UsageError(
                'the run has no thread_id; give one, as in config={"configurable": {"thread_id": '
                '"ada"}}'
            )
        now = list(messages)
        with self._lock:
            before, session, count = self._seen.pop(thread, ([], None, 0))
            if session is not None and now[: len(before)] == before and session.count() == count:
                session.append(_read(now[len(before) :]))
            else:
                session = keep(self._memory, thread, _read(now), self._space)
            self._seen[thread] = (now, session, session.count())
            if len(self._seen) > _REMEMBERED:
                del self._seen[next(iter(self._seen))]
        return session


def _document(passage: Hit) -> Document:
    """Return a passage as LangChain's document."""
    said = passage.message
    return Document(
        passage.text,
        metadata={
            "session_id": passage.session_id,
            "index": passage.span.start,
            "speaker": said and (said.name or said.role),
            "created_at": passage.time_range[0].isoformat(),
            "score": passage.score,
        },
    )


def _leading(messages: Sequence[Any]) -> int:
    """Return the number of system messages at the beginning; a session does not keep those."""
    others = (n for n, each in enumerate(messages) if not isinstance(each, SystemMessage))
    return next(others, len(messages))


def _repaired(state: Sequence[Any], request: Sequence[Any]) -> Iterator[Any]:
    """Yield the state with the results that LangChain adds for calls that it could not parse.

    They are in the request alone until the model has answered, and a provider refuses a call
    without a result.
    """
    answered = {each.tool_call_id for each in state if isinstance(each, ToolMessage)}
    added = {each.tool_call_id: each for each in request if isinstance(each, ToolMessage)}
    for each in state:
        yield each
        for call in _broken(each):
            if call["id"] in added and call["id"] not in answered:
                answered.add(call["id"])
                yield added[call["id"]]


def _broken(message: Any) -> list[Any]:
    """Return the calls of a message that could not be parsed, as far as a result can name them."""
    return [each for each in getattr(message, "invalid_tool_calls", ()) if each.get("id")]


def _read(messages: Iterable[Any]) -> list[Message]:
    """Return messages of LangChain as messages of hiermem, by their ids."""
    return [_message(each) for each in messages]


def _message(message: Any) -> Message:
    shape: dict[str, Any]
    try:
        [shape] = convert_to_openai_messages([message])
    except Exception:
        if isinstance(message.content, str):
            raise
        # LangChain converts what OpenAI has too; the rest is kept as it is.
        [shape] = convert_to_openai_messages([message.model_copy(update={"content": ""})])
        shape["content"] = [
            {"type": "text", "text": block}
            if isinstance(block, str)
            else json.loads(json.dumps(block, default=_json))
            for block in message.content
        ]
    if isinstance(shape["content"], str):
        # As LangGraph's checkpoints write a lone surrogate: what they change is no rewrite.
        shape["content"] = shape["content"].encode("utf-8", "replace").decode("utf-8")
    if broken := _broken(message):
        shape["tool_calls"] = [
            *shape.get("tool_calls", ()),
            *(
                {
                    "id": each["id"],
                    "type": "function",
                    "function": {
                        "name": each.get("name") or "unknown",
                        "arguments": each.get("args") or "",
                    },
                }
                for each in broken
            ),
        ]
    for call in shape.get("tool_calls", ()):
        # Some servers name no call; the session then has a name for it.
        call["id"] = call["id"] or ""
    key = message.id if message.id and len(message.id) <= _MOST_KEY else None
    return Message.from_openai(shape, key=key)


def _json(value: Any) -> str:
    """Return what JSON does not have as text: media may be given as bytes."""
    return b64encode(value).decode("ascii") if isinstance(value, bytes) else str(value)


def _written(message: Message) -> Any:
    """Write a message that the state does not hold."""
    shape = message.to_openai(extras=False)
    shape.pop("tool_calls", None)  # LangChain raises for arguments that are no JSON
    [written] = convert_to_messages([{**shape, "content": shape.get("content") or ""}])
    if not message.tool_calls:
        return written
    calls, broken = [], []
    for call in message.tool_calls:
        made: dict[str, Any] = {"id": call.id, "name": call.name, "args": call.arguments}
        try:
            arguments = json.loads(call.arguments or "{}")
        except ValueError:
            arguments = None
        if isinstance(arguments, dict):
            calls.append({**made, "args": arguments, "type": "tool_call"})
        else:
            broken.append({**made, "error": None, "type": "invalid_tool_call"})
    return AIMessage(
        written.content, name=written.name, tool_calls=calls, invalid_tool_calls=broken
    )
