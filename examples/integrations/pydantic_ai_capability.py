"""An agent of pydantic-ai with a memory that does not end: a hundred turns with tools.

The model is a function, so that the example runs offline. The program stops half-way and starts
again; the application itself keeps nothing but the id of the conversation.

    pip install '.[pydantic-ai]'
    python examples/integrations/pydantic_ai_capability.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from hiermem import Memory
from hiermem.integrations.pydantic_ai import HiermemCapability
from hiermem.tokens import TiktokenCounter

BUDGET = 2_000
TURNS = 100
SENT: list[int] = []
COUNTER = TiktokenCounter()


def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """Stand in for a provider: call the tool, then answer; measure what was sent."""
    parts = [part for message in messages for part in message.parts]
    SENT.append(sum(COUNTER.count(str(getattr(part, "content", None) or part)) for part in parts))
    check(messages)
    last = parts[-1]
    if isinstance(last, ToolReturnPart):
        return ModelResponse([TextPart(f"It says: {last.content}.")])
    pump = int(str(last.content).split()[-1])
    return ModelResponse([ToolCallPart("read_pump", {"pump": pump}, f"call-{pump}")])


def check(messages: list[ModelMessage]) -> None:
    """Make sure of what providers insist on: every call has its result, every result its call."""
    parts = [part for message in messages for part in message.parts]
    calls = [part.tool_call_id for part in parts if isinstance(part, ToolCallPart)]
    results = [part.tool_call_id for part in parts if isinstance(part, ToolReturnPart)]
    assert calls == results, "a call was parted from its result"
    assert ModelMessagesTypeAdapter.dump_json(messages)


def talk(path: Path, turns: range) -> None:
    """Ask about one pump after the other; all that is kept is in the file."""
    with Memory.open(path) as memory, memory.worker():
        agent = Agent(
            FunctionModel(answer),
            instructions="You keep the log.",
            capabilities=[HiermemCapability(memory, max_tokens=BUDGET)],
        )

        @agent.tool_plain
        def read_pump(pump: int) -> str:
            """Read the speed of a pump."""
            return f"pump {pump} runs at {2_900 + pump} rpm, bearing at {40 + pump % 9} C, open"

        for turn in turns:
            agent.run_sync(f"Please note the state of pump {turn}", conversation_id="pump-house")


def main() -> None:
    """Talk, stop, talk again, and print what was kept and what was sent."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chat.db"
        talk(path, range(TURNS // 2))
        talk(path, range(TURNS // 2, TURNS))

        with Memory.open(path) as memory:
            session = memory.session("pump-house")
            print(session.context(BUDGET).explain())
            stored = session.messages()
            results = {each.message.tool_call_id for each in stored if each.role == "tool"}
            print(f"{len(stored)} messages kept, {len(results)} tool results")
            hits = session.search("pump 7 rpm", levels=[0], roles=["tool"])
            print("found:", hits[0].text)
    print(f"at most {max(SENT):,} tokens in a request")


if __name__ == "__main__":
    main()
