"""A chat loop: append what was said, ask for a context, call the provider, append the answer.

The provider here is a function that answers from its prompt, so the example runs offline; put your
own call in its place. The budget is small, so that the session outgrows it while you watch.

    python examples/chat_loop.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hiermem import Memory, Message

BUDGET = 1_500


def call_provider(messages: list[dict[str, Any]]) -> str:
    """Stand in for a chat completion: repeat the newest question, count what was sent."""
    question = messages[-1]["content"]
    return f"Noted ({len(messages)} messages read). You said: {question}"


def main() -> None:
    """Talk for sixty turns and print the composition of every tenth request."""
    folder = tempfile.TemporaryDirectory()
    sent = fresh = 0
    with folder, Memory.open(Path(folder.name) / "chat.db") as memory:
        session = memory.session(
            "pump-house", title="Pump house", participants=["Ada", "assistant"]
        )
        for turn in range(60):
            said = f"Reading {turn}: pump {turn % 7} ran at {2_900 + turn} rpm, {40 + turn % 9} C."
            session.append(Message.user(said, key=f"turn-{turn}"))

            context = session.context(max_tokens=BUDGET, system="You keep the log of a pump house.")
            answer = call_provider(context.to_openai())
            session.append(Message.assistant(answer))
            session.update()

            sent += context.total_tokens
            fresh += context.total_tokens - context.shared_prefix_tokens
            if turn % 10 == 9:
                print(f"turn {turn + 1}: {context.explain()}\n")
        print(
            f"{session.status().messages} messages in {session.status().nodes} summaries by level"
        )
        print(f"{sent:,} tokens sent, {fresh:,} of them outside the prefix of the request before")


if __name__ == "__main__":
    main()
