"""A chat with several users and conversations, behind FastAPI.

Each user is a space: a new conversation begins with what that user asked for and said in others,
and with nothing of another user's. The header ``X-User`` says who asks; in your application that is
whoever has logged in. ``call_model`` stands in for your provider.

    pip install fastapi uvicorn
    uvicorn web_chat:app --app-dir examples
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, HTTPException, Request
from pydantic import BaseModel

from hiermem import AsyncMemory, AsyncSpace, BudgetTooSmallError, InvalidMessageError, Message


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open one memory for all requests; a worker makes the summaries meanwhile."""
    async with AsyncMemory.open(os.environ.get("CHAT_DB", "chat.db")) as memory, memory.worker():
        app.state.memory = memory
        yield


app = FastAPI(lifespan=lifespan)
User = Annotated[str, Header(alias="X-User", min_length=1, max_length=100)]


def memory_of(request: Request) -> AsyncMemory:
    """Return the memory of the application."""
    memory: AsyncMemory = request.app.state.memory
    return memory


def space_of(request: Request, user: User) -> AsyncSpace:
    """Return the space of the user who asks; its first use makes it."""
    return memory_of(request).space(user, person=user)


Memory = Annotated[AsyncMemory, Depends(memory_of)]
Space = Annotated[AsyncSpace, Depends(space_of)]


class Question(BaseModel):
    """What a user writes; the same ``id`` again, after a lost answer, is the same question."""

    id: str
    text: str


async def call_model(messages: list[dict[str, Any]]) -> str:
    """Stand in for a model call: say what the prompt begins with."""
    return str(messages[0]["content"])


@app.post("/chats/{chat}")
async def say(chat: str, question: Question, memory: Memory, space: Space) -> dict[str, str]:
    """Answer a message of a conversation."""
    session = memory.session(f"{space.name}/{chat}", space=space.name)
    try:
        asked = Message.user(question.text, key=f"{question.id}/question")
        (index,) = await session.append(asked)
        later = await session.messages(index + 1, index + 2)
        if later and later[0].key == f"{question.id}/answer":
            return {"answer": str(later[0].content)}
        context = await session.context(4_000, query=question.text)
    except InvalidMessageError as error:
        raise HTTPException(400, str(error)) from None
    except BudgetTooSmallError as error:
        raise HTTPException(413, str(error)) from None
    answer = await call_model(context.to_openai())
    await session.append(Message.assistant(answer, key=f"{question.id}/answer"))
    return {"answer": answer}


@app.get("/chats")
async def chats(memory: Memory, space: Space) -> list[str]:
    """List the user's conversations, the newest first."""
    records = await memory.sessions(space=space.name, order_by="last_activity")
    return [record.id.partition("/")[2] for record in records]


@app.get("/known")
async def known(space: Space, about: str | None = None) -> list[str]:
    """Say what is known about the user, or what is known of something."""
    return [line.text for line in await space.about(about)]


@app.delete("/known")
async def forget(space: Space, text: str) -> dict[str, list[str]]:
    """Forget what holds these words, in all conversations of the user."""
    report = await space.forget(text, authors="all")
    return {
        "forgotten": [line.text for line in report.gone],
        "left": [line.text for line in report.unproven],
    }
