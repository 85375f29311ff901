"""One memory behind an asynchronous web handler: many sessions at once, retries that do no harm.

``handle`` is what a framework would call. One AsyncMemory serves all requests of a process. The
message key is the request's id, so that a client may send a request again after a lost answer.
A worker makes the summaries beside the requests, so that none waits for them. In one session, one
request is answered at a time, as in a chat.

    python examples/web_handler.py
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from hiermem import AsyncMemory, BudgetTooSmallError, InvalidMessageError, Message


@dataclass(frozen=True)
class Request:
    """An incoming request: the user, the request's id, the text."""

    user: str
    id: str
    text: str


@dataclass(frozen=True)
class Response:
    """The answer to a request."""

    status: int
    body: str


async def call_provider(prompt: str) -> str:
    """Stand in for a model call."""
    await asyncio.sleep(0.001)
    return f"I read {len(prompt.split())} words."


async def handle(memory: AsyncMemory, request: Request) -> Response:
    """Answer one request; the same request twice gives the same answer and is stored once."""
    session = memory.session(f"user/{request.user}")
    try:
        asked = Message.user(request.text, key=f"{request.id}/question")
        (index,) = await session.append(asked)
        later = await session.messages(index + 1, index + 2)
        if later and later[0].key == f"{request.id}/answer":
            return Response(200, str(later[0].content))
        context = await session.context(max_tokens=1_000)
    except InvalidMessageError as error:
        return Response(400, str(error))
    except BudgetTooSmallError as error:
        return Response(413, f"the message needs a budget of {error.minimum} tokens")
    answer = await call_provider(context.to_text())
    await session.append(Message.assistant(answer, key=f"{request.id}/answer"))
    return Response(200, answer)


async def main() -> None:
    """Serve three users at once, with a request sent twice and one that is refused."""
    async with AsyncMemory.open(":memory:") as memory, memory.worker() as worker:

        async def visit(user: str) -> None:
            for turn in range(25):
                await handle(memory, Request(user, f"{user}-{turn}", f"Question {turn} of {user}."))

        await asyncio.gather(*(visit(user) for user in ("ada", "bela", "chris")))

        once = await handle(memory, Request("ada", "again", "Did this arrive?"))
        twice = await handle(memory, Request("ada", "again", "Did this arrive?"))
        print("the same answer to a repeated request:", once == twice)
        refused = await handle(memory, Request("ada", "bad", "a NUL: \x00"))
        print(refused.status, refused.body)
        await worker.drain()
        for record in await memory.sessions():
            status = await memory.session(record.id).status()
            print(record.id, status.messages, "messages,", status.nodes, "summaries by level")


if __name__ == "__main__":
    asyncio.run(main())
