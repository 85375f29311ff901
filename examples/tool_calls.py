"""An agent that calls tools: calls and results stay together, however long the history grows.

python examples/tool_calls.py
"""

from __future__ import annotations

import json
from typing import Any

from hiermem import Memory, Message, ToolCall

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "read_pump",
            "description": "Read the speed of a pump.",
            "parameters": {"type": "object", "properties": {"pump": {"type": "integer"}}},
        },
    }
]


def call_provider(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> dict[str, Any]:
    """Stand in for a chat completion that calls the tool before it answers."""
    last = messages[-1]
    if last["role"] == "tool":
        return {"role": "assistant", "content": f"The pump reports {last['content']}."}
    name = tools[0]["function"]["name"]
    call = {
        "id": f"call-{last['content'].split()[-1]}",
        "type": "function",
        "function": {"name": name, "arguments": json.dumps({"pump": int(last["content"][-1])})},
    }
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def run_tool(call: ToolCall) -> str:
    """Do what the model asked for."""
    pump = json.loads(call.arguments)["pump"]
    return f"pump {pump}: {2_900 + pump} rpm"


def check(messages: list[dict[str, Any]]) -> None:
    """Make sure of what providers insist on: every call is followed by its result, no orphans."""
    waiting: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
        else:
            assert not waiting, "a call without its result"
            waiting |= {call["id"] for call in message.get("tool_calls") or ()}
    assert not waiting


def main() -> None:
    """Ask forty times, with a budget that holds a few turns only."""
    with Memory.open(":memory:") as memory:
        session = memory.session("agent")
        for turn in range(40):
            question = f"How fast is pump {turn % 10}? Ticket {turn % 10}"
            session.append(Message.user(question))
            while True:
                # With the question of the turn until it is answered: what is recalled for it stands
                # before it, unchanged, and the last message is always the newest one.
                context = session.context(max_tokens=1_200, query=question, tools=TOOLS)
                prompt = context.to_openai()
                answer = Message.from_openai(call_provider(prompt, TOOLS))
                session.append(answer)
                if not answer.tool_calls:
                    break
                session.append(
                    Message.tool(run_tool(call), tool_call_id=call.id) for call in answer.tool_calls
                )
                check(session.context(max_tokens=1_200, query=question, tools=TOOLS).to_openai())
            session.update()
        print(context.explain())
        print("last answer:", session.messages()[-1].content)
        flagged = [message.index for message in session.messages() if message.flags]
        print(f"{session.status().messages} messages, {len(flagged)} of them flagged")


if __name__ == "__main__":
    main()
