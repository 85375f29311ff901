"""How many questions a model answers from what a context of a chat holds.

The model of any OpenAI-compatible server writes the summaries, answers each LoCoMo question from
one context alone, and judges the answers. It judges them one by one, without the name of the
context, against the answer of the data's authors. The contexts:

    window    the newest messages
    extracts  a live context whose summaries the offline model made
    model     a live context whose summaries the model wrote
    recall    ``recall(question)``, a part of the budget
    query     ``context(query=question)`` over offline summaries
    whole     every message

A live context is asked for after every tenth message, as an application does. The answers of the
model are kept in a folder by the hash of their prompt, so that a run that was cut off goes on and
pays nothing twice. The key is read from OPENAI_API_KEY.

    HIERMEM_DATA=data python benchmarks/answers.py gpt-5-mini
    HIERMEM_DATA=data python benchmarks/answers.py qwen3 --url http://localhost:11434/v1 \
        --chats 0,1 --questions 40 --budgets 4000,8000 --keep answers
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from conversations import ADVERSARIAL, Chat, Question, folder, locomo
from openai import OpenAI

from hiermem import LLMRequest, Memory, Session, UpdatePolicy
from hiermem.tokens import default_counter

#: The messages between two requests for a live context.
STEP = 10
#: The part of the budget that recall alone is given.
RECALLED = 0.25
READER = (
    "Answer the question from the record of a conversation alone, in at most 30 words. "
    "If the record does not tell, answer: not known."
)
JUDGE = (
    "Compare the answer of a reader with the right answer. It is right if it states the same fact; "
    "wording, more detail, and another form of the same date do not matter. "
    "Reply with one word: right or wrong."
)
_MARK = re.compile(r"\b[0-9a-f]{12,64}\b")
Ask = Callable[[str, str], str]


def asking(model: str, url: str | None, keep: Path) -> Ask:
    """Return a function that asks the model once for each pair of system and user text."""
    client = OpenAI(base_url=url, api_key=os.environ.get("OPENAI_API_KEY", "none"))
    keep.mkdir(parents=True, exist_ok=True)

    def ask(system: str, text: str) -> str:
        # The marks around records differ from store to store; what stands between them does not.
        asked = _MARK.sub("", f"{model}\n{system}\n{text}")
        kept = keep / hashlib.sha256(asked.encode()).hexdigest()
        if kept.exists():
            return kept.read_text("utf-8")
        answer = client.chat.completions.create(
            model=model,
            messages=[{"role": "system", "content": system}, {"role": "user", "content": text}],
        )
        said = (answer.choices[0].message.content or "").strip()
        kept.write_text(said, "utf-8")
        return said

    return ask


def chosen(chat: Chat, count: int, seed: int) -> list[Question]:
    """Choose questions by chance, those with an answer that the conversation gives."""
    asked = [question for question in chat.questions if question.kind != ADVERSARIAL]
    return random.Random(seed).sample(asked, min(count, len(asked)))


def live(chat: Chat, budget: int, ask: Ask | None) -> str:
    """Return the last context of a chat that grows; ``ask``, if given, writes its summaries."""
    policy = UpdatePolicy(batch_delay=0)

    def write(request: LLMRequest) -> str:
        system = "\n\n".join(m.content for m in request.messages if m.role == "system")
        return ask(system, "\n\n".join(m.content for m in request.messages if m.role != "system"))

    with Memory.open(":memory:", llm=write if ask else None, update_policy=policy) as memory:
        session, text = memory.session("chat"), ""
        for start in range(0, len(chat.messages), STEP):
            session.append(chat.messages[start : start + STEP])
            session.update()
            text = session.context(max_tokens=budget).to_text()
        return text


def window(session: Session, budget: int) -> str:
    """Return the newest messages that fit the budget, in the form in which contexts show them."""
    low, high = 0, len(session)
    while low < high:
        middle = (low + high) // 2
        if default_counter().count(whole(session, middle)) > budget:
            low = middle + 1
        else:
            high = middle
    return whole(session, low)


def whole(session: Session, start: int = 0) -> str:
    """Return the messages from ``start`` on, each with its day and speaker."""
    return "\n".join(
        f"[{message.created_at:%Y-%m-%d}] {message.name or message.role}: {message.content}"
        for message in session.messages(start, len(session))
    )


def contexts(
    chat: Chat, budgets: list[int], ask: Ask
) -> Iterator[tuple[str, Callable[[str], str]]]:
    """Yield the name of each context and what it gives for a question."""
    memory = Memory.open(":memory:")
    session = memory.session("chat")
    session.append(chat.messages)
    session.update()
    everything = whole(session)
    for budget in budgets:
        shown = {
            "window": window(session, budget),
            "extracts": live(chat, budget, None),
            "model": live(chat, budget, ask),
        }
        for name, text in shown.items():
            yield f"{name} {budget:,}", lambda _, text=text: text
        part = int(budget * RECALLED)
        yield f"recall {part:,}", lambda asked, n=part: session.recall(asked, max_tokens=n).text
        yield (
            f"query {budget:,}",
            lambda asked, n=budget: session.context(max_tokens=n, query=asked).to_text(),
        )
    yield "whole", lambda _: everything


def judged_answer(
    question: Question, *, shown: Callable[[str], str], ask: Ask, judge: Ask
) -> tuple[bool, int]:
    """Return whether the answer from a context is right, and the tokens of the context."""
    record = shown(question.text)
    said = ask(READER, f"{record}\n\nQuestion: {question.text}")
    case = f"Question: {question.text}\nRight answer: {question.answer}"
    word = judge(JUDGE, f"{case}\nAnswer of the reader: {said}")
    return word.lower().startswith("right"), default_counter().count(record)


def main() -> None:
    """Ask all questions of all contexts and print how many answers are right."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--judge", help="another model of the server that judges the answers")
    parser.add_argument("--url", help="the server; OpenAI's if it is not given")
    parser.add_argument("--chats", default="0,1", help="LoCoMo conversations by number")
    parser.add_argument("--questions", type=int, default=40, help="questions a conversation")
    parser.add_argument("--budgets", default="4000,8000", help="tokens")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, default=Path("answers"), help="folder of the answers")
    given = parser.parse_args()
    ask = asking(given.model, given.url, given.keep)
    judge = asking(given.judge or given.model, given.url, given.keep)
    talks = list(locomo(folder()))
    right, asked_of, tokens = defaultdict(int), defaultdict(int), defaultdict(int)
    with ThreadPoolExecutor(8) as pool:
        for number in map(int, given.chats.split(",")):
            chat = talks[number]
            questions = chosen(chat, given.questions, given.seed)
            for name, shown in contexts(chat, list(map(int, given.budgets.split(","))), ask):
                judged = partial(judged_answer, shown=shown, ask=ask, judge=judge)
                for is_right, size in pool.map(judged, questions):
                    right[name] += is_right
                    asked_of[name] += 1
                    tokens[name] += size
    print(f"{'context':<16} {'tokens':>8} {'right':>6} {'of':>4} {'share':>6}")
    for name, of in asked_of.items():
        share = right[name] / of
        print(f"{name:<16} {tokens[name] / of:>8,.0f} {right[name]:>6} {of:>4} {share:>6.2f}")


if __name__ == "__main__":
    main()
