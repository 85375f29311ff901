"""An agent of the OpenAI Agents SDK with a memory that does not end: a hundred turns with tools.

The model is a function, so that the example runs offline. The program stops half-way and starts
again over the same file.

    pip install '.[openai-agents]'
    python examples/integrations/openai_agents_session.py
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from agents import (
    Agent,
    Model,
    ModelResponse,
    RunConfig,
    Runner,
    Usage,
    function_tool,
    set_tracing_disabled,
)
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from hiermem import Memory
from hiermem.integrations.openai_agents import HiermemSession
from hiermem.tokens import TiktokenCounter

BUDGET = 2_000
TURNS = 100


@function_tool
def read_pump(pump: int) -> str:
    """Read the speed of a pump."""
    return f"pump {pump} runs at {2_900 + pump} rpm, bearing at {40 + pump % 9} C, valve open"


class Provider(Model):
    """Stands in for a provider: calls the tool, then answers; measures what it is sent."""

    def __init__(self) -> None:
        """Begin with nothing sent."""
        self.sent: list[int] = []
        self._counter = TiktokenCounter()

    async def get_response(
        self,
        system_instructions: str | None,
        input: Any,  # noqa: A002
        *_: Any,
        **__: Any,
    ) -> ModelResponse:
        """Answer the newest item."""
        self.sent.append(self._counter.count(json.dumps(input)))
        check(input)
        last = input[-1]
        if last.get("type") == "function_call_output":
            text = ResponseOutputText(
                text=f"It says: {last['output']}.", type="output_text", annotations=[]
            )
            said = ResponseOutputMessage(
                id="", content=[text], role="assistant", status="completed", type="message"
            )
            return ModelResponse(output=[said], usage=Usage(), response_id=None)
        pump = last["content"].split()[-1]
        call = ResponseFunctionToolCall(
            call_id=f"call-{pump}",
            name="read_pump",
            arguments=json.dumps({"pump": int(pump)}),
            type="function_call",
        )
        return ModelResponse(output=[call], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        """Refuse; this example does not stream."""
        raise NotImplementedError


def check(items: list[dict[str, Any]]) -> None:
    """Make sure of what providers insist on: every call has its result, every result its call."""
    calls = [item["call_id"] for item in items if item.get("type") == "function_call"]
    results = [item["call_id"] for item in items if item.get("type") == "function_call_output"]
    assert calls == results, "a call was parted from its result"


async def talk(path: Path, turns: range, provider: Provider) -> None:
    """Ask about one pump after the other; all that is kept is in the file."""
    agent = Agent("operator", instructions="You keep the log.", tools=[read_pump], model=provider)
    with Memory.open(path) as memory, memory.worker():
        session = HiermemSession(memory, "pump-house", max_tokens=BUDGET)
        for turn in turns:
            await Runner.run(
                agent,
                f"Please note the state of pump {turn}",
                session=session,
                run_config=RunConfig(tracing_disabled=True),
            )


async def main() -> None:
    """Talk, stop, talk again, and print what was kept and what was sent."""
    set_tracing_disabled(disabled=True)
    provider = Provider()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chat.db"
        await talk(path, range(TURNS // 2), provider)
        await talk(path, range(TURNS // 2, TURNS), provider)

        with Memory.open(path) as memory:
            session = memory.session("pump-house")
            print(session.context(BUDGET).explain())
            stored = session.messages()
            results = {each.message.tool_call_id for each in stored if each.role == "tool"}
            print(f"{len(stored)} messages kept, {len(results)} tool results")
            hits = session.search("pump 7 rpm", levels=[0], roles=["tool"])
            print("found:", hits[0].text)
    print(f"at most {max(provider.sent):,} tokens in a request, as JSON")


if __name__ == "__main__":
    asyncio.run(main())
