"""What agent frameworks send and keep by themselves, and with hiermem, in one conversation.

A hundred questions, each answered after a tool was called, so four messages a turn. The models are
functions. For each way of keeping the history: the lines of code of the bridge, the tokens of the
largest request and of all requests (as JSON), the messages that the last request covers (as they
are, or in summaries that hiermem made of them) and those that are still kept. Needs the extras of
the three frameworks:

    pip install '.[langchain,openai-agents,pydantic-ai]'
    python benchmarks/bridges.py
"""

from __future__ import annotations

import ast
import asyncio
import json
import logging
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from hiermem import Memory
from hiermem.tokens import TiktokenCounter

TURNS, BUDGET, NEWEST = 100, 2_000, 20
COUNTER = TiktokenCounter()
CODE = Path(__file__).parents[1] / "src" / "hiermem" / "integrations"
#: What a way of keeping the history gives: the tokens of each request, and the numbers of messages
#: that the last request covers and of those that are kept.
Ran = tuple[list[int], int, int]


def question(turn: int) -> str:
    return f"Please have a look at pump {turn} and tell me whether it needs attention today"


def reading(pump: int) -> str:
    return f"pump {pump}: {2_900 + pump} rpm, bearing {40 + pump % 9} C, serviced {pump} days ago"


def tokens(shown: Any) -> int:
    return COUNTER.count(json.dumps(shown, default=str))


def with_hiermem(memory: Memory, sent: list[int]) -> Ran:
    session = memory.session("ada")
    context = session.context(BUDGET)
    return sent, round(context.coverage * context.messages), session.count()


async def agents_sdk(session: Any, sent: list[int]) -> None:
    import agents
    from openai.types.responses import (
        ResponseFunctionToolCall,
        ResponseOutputMessage,
        ResponseOutputText,
    )

    @agents.function_tool
    def read_pump(pump: int) -> str:
        """Read a pump."""
        return reading(pump)

    class Provider(agents.Model):
        async def get_response(self, *_: Any, **asked: Any) -> Any:
            items = asked["input"]
            sent.append(tokens(items))
            last = items[-1]
            if last.get("type") == "function_call_output":
                text = ResponseOutputText(text=last["output"], type="output_text", annotations=[])
                said: Any = ResponseOutputMessage(
                    id="", content=[text], role="assistant", status="completed", type="message"
                )
            else:
                said = ResponseFunctionToolCall(
                    call_id=f"call-{len(sent)}",
                    name="read_pump",
                    arguments=json.dumps({"pump": int(last["content"].split()[6])}),
                    type="function_call",
                )
            return agents.ModelResponse(output=[said], usage=agents.Usage(), response_id=None)

        def stream_response(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

    agents.set_tracing_disabled(disabled=True)
    agent = agents.Agent("operator", tools=[read_pump], model=Provider())
    for turn in range(TURNS):
        await agents.Runner.run(agent, question(turn), session=session)


async def agents_alone(limit: int | None) -> Ran:
    from agents import SessionSettings, SQLiteSession

    sent: list[int] = []
    session = SQLiteSession("ada", session_settings=SessionSettings(limit=limit))
    await agents_sdk(session, sent)
    covered, kept = len(await session.get_items()), len(await session.get_items(limit=10_000))
    session.close()
    return sent, covered, kept


async def agents_hiermem() -> Ran:
    from hiermem.integrations.openai_agents import HiermemSession

    sent: list[int] = []
    with Memory.open(":memory:") as memory, memory.worker():
        await agents_sdk(HiermemSession(memory, "ada", max_tokens=BUDGET), sent)
        return with_hiermem(memory, sent)


async def langchain(middleware: Callable[[Any], list[Any]]) -> Ran:
    from langchain.agents import create_agent
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, ToolMessage, convert_to_openai_messages
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langchain_core.tools import tool
    from langgraph.checkpoint.memory import InMemorySaver

    sent: list[int] = []

    @tool
    def read_pump(pump: int) -> str:
        """Read a pump."""
        return reading(pump)

    class Provider(BaseChatModel):
        @property
        def _llm_type(self) -> str:
            return "stand-in"

        def bind_tools(self, tools: Any, **_: Any) -> Any:
            return self

        def _generate(self, messages: Any, *_: Any, **__: Any) -> ChatResult:
            last = messages[-1]
            sent.append(tokens(convert_to_openai_messages(messages)))
            if isinstance(last, ToolMessage):
                said = AIMessage(str(last.content))
            elif str(last.content).startswith("Please have a look"):
                args = {"pump": int(str(last.content).split()[6])}
                call = {"name": "read_pump", "args": args, "id": f"call-{len(sent)}"}
                said = AIMessage("", tool_calls=[call])
            else:
                said = AIMessage("The user asked about pumps, and all of them were read. " * 8)
            return ChatResult(generations=[ChatGeneration(message=said)])

    provider, thread = Provider(), {"configurable": {"thread_id": "ada"}}
    agent = create_agent(
        provider, [read_pump], middleware=middleware(provider), checkpointer=InMemorySaver()
    )
    for turn in range(TURNS):
        await agent.ainvoke({"messages": [{"role": "user", "content": question(turn)}]}, thread)
    state = len(agent.get_state(thread).values["messages"])
    return sent, state, state


def summarization(provider: Any) -> list[Any]:
    from langchain.agents.middleware import SummarizationMiddleware

    return [
        SummarizationMiddleware(provider, trigger=("tokens", BUDGET), keep=("messages", NEWEST))
    ]


async def langchain_hiermem() -> Ran:
    from hiermem.integrations.langchain import HiermemMiddleware

    with Memory.open(":memory:") as memory, memory.worker():
        sent, *_ = await langchain(lambda _: [HiermemMiddleware(memory, max_tokens=BUDGET)])
        return with_hiermem(memory, sent)


async def pydantic_ai(capabilities: list[Any]) -> Ran:
    from pydantic_ai import Agent
    from pydantic_ai import messages as pai
    from pydantic_ai.models.function import FunctionModel

    sent: list[int] = []

    def provider(messages: Any, _: Any) -> Any:
        parts = [part for message in messages for part in message.parts]
        shown = [(p.part_kind, getattr(p, "content", None) or p.args) for p in parts]
        sent.append(tokens(shown))
        last = parts[-1]
        if isinstance(last, pai.ToolReturnPart):
            return pai.ModelResponse([pai.TextPart(str(last.content))])
        pump = int(str(last.content).split()[6])
        return pai.ModelResponse([pai.ToolCallPart("read_pump", {"pump": pump})])

    agent = Agent(FunctionModel(provider), capabilities=capabilities)

    @agent.tool_plain
    def read_pump(pump: int) -> str:
        """Read a pump."""
        return reading(pump)

    history: Any = None
    for turn in range(TURNS):
        ran = await agent.run(question(turn), message_history=history, conversation_id="ada")
        history = ran.all_messages()
    return sent, len(history), len(history)


def newest(messages: list[Any]) -> list[Any]:
    """Keep the newest messages from a user's on, as the documentation of pydantic-ai says."""
    begins = [n for n, each in enumerate(messages) if each.parts[0].part_kind == "user-prompt"]
    return messages[next((n for n in begins if n >= len(messages) - NEWEST), begins[-1]) :]


async def pydantic_ai_newest() -> Ran:
    from pydantic_ai.capabilities import ProcessHistory

    return await pydantic_ai([ProcessHistory(newest)])


async def pydantic_ai_hiermem() -> Ran:
    from hiermem.integrations.pydantic_ai import HiermemCapability

    with Memory.open(":memory:") as memory, memory.worker():
        sent, *_ = await pydantic_ai([HiermemCapability(memory, max_tokens=BUDGET)])
        return with_hiermem(memory, sent)


def lines_of(*names: str) -> int:
    """Return the lines of code of modules, without comments, docstrings and blank lines."""
    found = 0
    for name in names:
        tree = ast.parse((CODE / f"{name}.py").read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
            if isinstance(node, documented) and ast.get_docstring(node):
                node.body.pop(0)
        found += sum(bool(line.strip()) for line in ast.unparse(tree).splitlines())
    return found


WAYS: list[tuple[str, str, Callable[[], Awaitable[Ran]]]] = [
    ("OpenAI Agents SDK, `SQLiteSession`", "", lambda: agents_alone(None)),
    (f"the same, `limit={NEWEST}`", "", lambda: agents_alone(NEWEST)),
    ("`HiermemSession`", "openai_agents", agents_hiermem),
    ("LangChain, checkpointer", "", lambda: langchain(lambda _: [])),
    (f"the same, `SummarizationMiddleware`, {NEWEST} kept", "", lambda: langchain(summarization)),
    ("`HiermemMiddleware`", "langchain", langchain_hiermem),
    ("pydantic-ai, `message_history`", "", lambda: pydantic_ai([])),
    (f"the same, `ProcessHistory`, newest {NEWEST}", "", pydantic_ai_newest),
    ("`HiermemCapability`", "pydantic_ai", pydantic_ai_hiermem),
]


def main() -> None:
    """Run every way and print a table."""
    warnings.simplefilter("ignore")
    logging.disable()
    print(f"{TURNS} turns of 4 messages; a budget of {BUDGET:,} tokens\n")
    print("| | lines | largest request | all requests | messages covered | kept |")
    print("|---|---|---|---|---|---|")
    for name, module, way in WAYS:
        sent, covered, kept = asyncio.run(way())
        lines = str(lines_of(module)) if module else "-"
        print(
            f"| {name} | {lines} | {max(sent):,} | {sum(sent):,} | {covered} | {kept} |",
            flush=True,
        )
    print(f"\nand {lines_of('branches')} lines that the three share")


if __name__ == "__main__":
    main()
