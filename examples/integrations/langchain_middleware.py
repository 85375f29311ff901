"""A LangChain agent with a memory that does not end: a hundred turns with tools.

The model is a function, so that the example runs offline. The program stops half-way and starts
again with the state that it had saved; a durable checkpointer does the same.

    pip install '.[langchain]'
    python examples/integrations/langchain_middleware.py
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ToolMessage,
    convert_to_openai_messages,
    messages_from_dict,
    messages_to_dict,
)
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool

from hiermem import Memory
from hiermem.integrations.langchain import HiermemMiddleware
from hiermem.tokens import TiktokenCounter

BUDGET = 2_000
TURNS = 100


@tool
def read_pump(pump: int) -> str:
    """Read the speed of a pump."""
    return f"pump {pump} runs at {2_900 + pump} rpm, bearing at {40 + pump % 9} C, valve open"


class Provider(BaseChatModel):
    """Stands in for a provider: calls the tool, then answers; measures what it is sent."""

    sent: list[int] = []  # noqa: RUF012 - a field of a pydantic model

    @property
    def _llm_type(self) -> str:
        return "stand-in"

    def bind_tools(self, tools: Any, **_: Any) -> Provider:
        """Take any tools."""
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        shapes = convert_to_openai_messages(messages)
        self.sent.append(TiktokenCounter().count(json.dumps(shapes)))
        check(messages)
        last = messages[-1]
        if isinstance(last, ToolMessage):
            answer = AIMessage(f"It says: {last.content}.")
        else:
            pump = int(str(last.content).split()[-1])
            call = {"name": "read_pump", "args": {"pump": pump}, "id": f"call-{pump}"}
            answer = AIMessage("", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=answer)])


def check(messages: list[BaseMessage]) -> None:
    """Make sure of what providers insist on: every call has its result, every result its call."""
    calls = [c["id"] for each in messages for c in getattr(each, "tool_calls", ())]
    results = [each.tool_call_id for each in messages if isinstance(each, ToolMessage)]
    assert calls == results, "a call was parted from its result"


def talk(folder: Path, turns: range, provider: Provider) -> None:
    """Ask about one pump after the other; the state is saved as an application would."""
    saved = folder / "state.json"
    history = messages_from_dict(json.loads(saved.read_text())) if saved.exists() else []
    with Memory.open(folder / "chat.db") as memory, memory.worker():
        agent = create_agent(
            provider,
            [read_pump],
            system_prompt="You keep the log.",
            middleware=[HiermemMiddleware(memory, max_tokens=BUDGET)],
        )
        for turn in turns:
            question = {"role": "user", "content": f"Please note the state of pump {turn}"}
            history = agent.invoke(
                {"messages": [*history, question]}, {"configurable": {"thread_id": "pump-house"}}
            )["messages"]
    saved.write_text(json.dumps(messages_to_dict(history)))


def main() -> None:
    """Talk, stop, talk again, and print what was kept and what was sent."""
    provider = Provider()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        talk(folder, range(TURNS // 2), provider)
        talk(folder, range(TURNS // 2, TURNS), provider)

        with Memory.open(folder / "chat.db") as memory:
            session = memory.session("pump-house")
            print(session.context(BUDGET).explain())
            stored = session.messages()
            results = {each.message.tool_call_id for each in stored if each.role == "tool"}
            print(f"{len(stored)} messages kept, {len(results)} tool results")
            hits = session.search("pump 7 rpm", levels=[0], roles=["tool"])
            print("found:", hits[0].text)
    print(f"at most {max(provider.sent):,} tokens in a request, as JSON")


if __name__ == "__main__":
    main()
