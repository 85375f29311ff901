"""What a new conversation knows of a person's earlier ones: wishes, recall, updates, forgetting.

Each sitting of a LoCoMo conversation and each dated batch of a BEAM chat is a session of one space,
and the conversation that is asked is new. Every part prints its figure and the figure that it has
to reach; the exit code is 1 if one is missed.

    HIERMEM_DATA=path/to/data python benchmarks/one_memory.py [part ...] [--list]

Parts: wishes, carried, recall, context, updates, prefix, forget, cost. ``--list`` prints the wishes
that are carried, to be judged by eye, and what the other parts miss.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import mean, median
from typing import Final

from conversations import ADVERSARIAL, Chat, beam, folder, locomo

from hiermem import AsyncMemory, ContextSelection, Message
from hiermem.text.wishes import wishes_in
from hiermem.tokens import default_counter

GOVERNING: Final = ("instruction_following", "preference_following")
SPACE: Final = "person"
NEW: Final = "new"
TURNS: Final = 60
TEXTS: Final = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
#: Wishes that hold in the conversation they are said in, and in no other.
BOUND: Final[list[str]] = TEXTS["bound"]
#: An old statement, the one that replaces it in the same words, and the question.
UPDATES: Final = [(each["old"], each["new"], each["question"]) for each in TEXTS["updates"]]
missed: list[str] = []
options = argparse.Namespace()


@dataclass(frozen=True)
class Fact:
    """A fact, the words by which it is forgotten, and other wordings of it.

    ``sharing`` hold a rare word or a name of it, ``other`` none of its words.
    """

    text: str
    asked: str
    sharing: tuple[str, ...]
    other: tuple[str, ...]


def facts() -> list[Fact]:
    """Return each wording of a fact with each of the names and towns."""
    rng = random.Random(46)
    found: list[Fact] = []
    for each in TEXTS["facts"]:
        towns = rng.sample(TEXTS["town"], len(TEXTS["town"]))
        for number, (name, town) in enumerate(zip(TEXTS["name"], towns, strict=True)):
            words = {kind: rng.choice(TEXTS[kind]) for kind in ("kin", "illness", "firm")}
            words |= {"name": name, "town": town, "sum": str(1_100 + 37 * number)}
            sharing, other = (
                tuple(text.format(**words) for text in each[kind]) for kind in ("sharing", "other")
            )
            text, asked = each["text"].format(**words), each["asked"].format(**words)
            found.append(Fact(text, asked, sharing, other))
    return found


def report(what: str, value: float, bar: float, *, most: bool = False, form: str = ".3f") -> None:
    """Print a figure with its bar, the least or the most that it may be."""
    holds = value <= bar if most else value >= bar
    sign = "at most" if most else "at least"
    print(f"| {what} | {value:{form}} | {sign} {bar:{form}} |{'' if holds else ' MISSED'}")
    if not holds:
        missed.append(what)


@dataclass(frozen=True)
class Sessions:
    """A chat as sessions, one for each date, and where each of its messages is."""

    chat: Chat
    messages: Mapping[str, list[Message]]
    places: Sequence[tuple[str, int]]

    def of(self, evidence: Iterable[int]) -> set[tuple[str, int]]:
        """Return the places of messages by their indices in the chat."""
        return {self.places[index] for index in evidence}


def by_date(chat: Chat) -> Sessions:
    """Part a chat where its date changes."""
    messages: dict[str, list[Message]] = {}
    places: list[tuple[str, int]] = []
    dated = itertools.groupby(chat.messages, key=lambda message: message.created_at)
    for number, (_, group) in enumerate(dated):
        name = f"s{number:02}"
        messages[name] = list(group)
        places += [(name, index) for index in range(len(messages[name]))]
    return Sessions(chat, messages, places)


def person_of(chat: Chat) -> str:
    """Return the name of the one who speaks first, "" in a chat with an assistant."""
    return chat.messages[0].name or ""


async def filled(memory: AsyncMemory, sessions: Sessions) -> None:
    """Append all sessions as members of one space."""
    memory.space(SPACE, person=person_of(sessions.chat) or "The user")
    for name, messages in sessions.messages.items():
        await memory.session(name, space=SPACE).append(messages)


def record_of(context: ContextSelection) -> str:
    return next((block.text for block in context.blocks if block.kind == "space"), "")


def carried_in(sessions: Sessions, record: str) -> dict[tuple[str, int], str]:
    """Return the messages whose wishes stand in a record."""
    return {
        (name, index): " ".join(wishes_in(message))
        for name, messages in sessions.messages.items()
        for index, message in enumerate(messages)
        if (found := " ".join(wishes_in(message))) and found in record
    }


async def wishes(chats: Sequence[Chat]) -> None:
    """Count the instructions and preferences that a new conversation shows, without a question."""
    shown = asked = 0
    for chat in chats:
        sessions = by_date(chat)
        async with AsyncMemory.open(":memory:") as memory:
            await filled(memory, sessions)
            new = memory.session(NEW, space=SPACE)
            await new.append(Message.user("Hello."))
            carried = carried_in(sessions, record_of(await new.context(4_000)))
        for question in chat.questions:
            if question.kind in GOVERNING:
                asked += 1
                found = sessions.of(question.evidence) & carried.keys()
                shown += bool(found)
                if options.list and not found:
                    said = [str(chat.messages[index].content) for index in question.evidence]
                    print(f"  not shown: {chat.name} {question.text}\n    {said}")
    report(f"BEAM, instructions and preferences shown of {asked}", shown, 26, form=".0f")


async def carried(chats: Sequence[Chat]) -> None:
    """Count wishes that are carried though they hold in one conversation alone, or are none.

    People who talk with each other have no wishes for an assistant, so each of theirs is false.
    """
    number = false = 0
    for chat in chats:
        sessions = by_date(chat)
        number += len(sessions.messages)
        async with AsyncMemory.open(":memory:") as memory:
            await filled(memory, sessions)
            new = memory.session(NEW, space=SPACE)
            await new.append(Message.user("Hello."))
            found = carried_in(sessions, record_of(await new.context(8_000)))
        false += len(found) if person_of(chat) else 0
        for place, text in found.items() if options.list else ():
            print(f"  {chat.name} {place[0]} {place[1]}: {text}")
    async with AsyncMemory.open(":memory:") as memory:
        memory.space(SPACE, person="Ada")
        for place, text in enumerate(BOUND):
            await memory.session(f"b{place}", space=SPACE).append(Message.user(text))
        new = memory.session(NEW, space=SPACE)
        await new.append(Message.user("Hello."))
        record = record_of(await new.context(64_000))
    bound = [line for line in record.splitlines() if line.startswith("Ada asked")]
    for line in bound if options.list else ():
        print(f"  bound: {line}")
    number += len(BOUND)
    share = 100 * (false + len(bound)) / number
    report(f"wishes carried wrongly per 100 of {number} sessions", share, 1, most=True)


async def recall(chats: Sequence[Chat]) -> None:
    """Compare recall over sessions with recall in one session that holds them all."""
    budgets = (500, 1_000, 2_000, 4_000)
    one: dict[int, list[float]] = defaultdict(list)
    many: dict[int, list[float]] = defaultdict(list)
    for chat in chats:
        sessions = by_date(chat)
        async with AsyncMemory.open(":memory:") as memory:
            await filled(memory, sessions)
            whole = memory.session("whole")
            await whole.append(chat.messages)
            for question in chat.questions:
                if question.kind == ADVERSARIAL:
                    continue
                wanted = sessions.of(question.evidence)
                for budget in budgets:
                    alone = {hit.index for hit in await whole.recall(question.text, budget)}
                    one[budget].append(len(question.evidence & alone) / len(wanted))
                    hits = await memory.recall(question.text, budget, space=SPACE)
                    held = {(hit.session_id, hit.index) for hit in hits}
                    many[budget].append(len(wanted & held) / len(wanted))
    for budget in budgets:
        name = f"LoCoMo, recall at {budget:,} over sessions ({mean(one[budget]):.3f} in one)"
        report(name, mean(many[budget]), mean(one[budget]) - 0.01)


async def context(chats: Sequence[Chat]) -> None:
    """Find the evidence in a new conversation's context with the question, and in recall alone."""
    for budget, bar in ((2_000, 0.78), (4_000, 0.87)):
        new: dict[str, list[float]] = defaultdict(list)
        alone: dict[str, list[float]] = defaultdict(list)
        for chat in chats:
            sessions = by_date(chat)
            async with AsyncMemory.open(":memory:") as memory:
                await filled(memory, sessions)
                for number, question in enumerate(chat.questions):
                    wanted = sessions.of(question.evidence)
                    hits = await memory.recall(question.text, budget, space=SPACE)
                    held = {(hit.session_id, hit.index) for hit in hits}
                    alone[question.kind].append(len(wanted & held) / len(wanted))
                    asking = memory.session(f"{NEW}{number}", space=SPACE)
                    await asking.append(Message.user(question.text))
                    shown = await asking.context(budget, query=question.text)
                    await asking.leave()
                    assert shown.total_tokens <= budget
                    held = {(hit.session_id, hit.index) for hit in shown.evidence or ()}
                    held |= carried_in(sessions, record_of(shown)).keys()
                    new[question.kind].append(len(wanted & held) / len(wanted))
        every = [mean(itertools.chain(*kinds.values())) for kinds in (new, alone)]
        report(f"BEAM, context at {budget:,} (recall alone {every[1]:.3f})", every[0], bar)
        for kind in sorted(new):
            name = f"  {kind} (recall alone {mean(alone[kind]):.3f})"
            report(name, mean(new[kind]), mean(alone[kind]) - 0.05)


async def updates(chats: Sequence[Chat]) -> None:
    """Say old and new facts in two sessions of real talk, and ask in a new conversation."""
    rng = random.Random(46)
    both: dict[str, int] = defaultdict(int)
    groups = [UPDATES[number :: len(chats)] for number in range(len(chats))]
    for chat, group in zip(chats, groups, strict=True):
        sessions = by_date(chat)
        names = list(sessions.messages)
        talks = {name: list(messages) for name, messages in sessions.messages.items()}
        for old, now, _ in group:
            first, second = sorted(rng.sample(names, 2))
            for name, text in ((first, old), (second, now)):
                at = rng.randrange(1, len(talks[name]))
                said = Message.user(
                    text, name=person_of(chat), created_at=talks[name][0].created_at
                )
                talks[name].insert(at, said)
        async with AsyncMemory.open(":memory:") as memory:
            await filled(memory, replace(sessions, messages=talks))
            for number, (old, now, question) in enumerate(group):
                asking = memory.session(f"{NEW}{number}", space=SPACE)
                await asking.append(Message.user(question))
                for budget in (500, 1_000):
                    text = (await memory.recall(question, budget, space=SPACE)).text
                    both[f"recall at {budget:,}"] += in_order(text, old, now)
                for budget in (2_000, 4_000):
                    text = (await asking.context(budget, query=question)).to_text()
                    both[f"context at {budget:,}"] += (holds := in_order(text, old, now))
                    if options.list and not holds:
                        print(f"  {budget:,}: {question} {old in text} {now in text}")
                await asking.leave()
    for name, number in both.items():
        bar = 34 if name != "recall at 500" else 0
        report(
            f"updates of {len(UPDATES)}, both stand, newer behind, {name}", number, bar, form=".0f"
        )


def in_order(text: str, old: str, now: str) -> bool:
    """Return whether both statements stand, the later one behind."""
    return old in text and now in text and text.rindex(old) < text.rindex(now)


async def prefix(chats: Sequence[Chat]) -> None:
    """Count the uncached tokens of a conversation while others of its space go on, and do not."""
    asked = [message for chat in chats for message in chat.messages]
    rates: list[float] = []
    count = default_counter().count
    for others in (False, True):
        sessions = by_date(chats[0])
        sent = new = 0
        async with AsyncMemory.open(":memory:") as memory:
            await filled(memory, sessions)
            talk = memory.session(NEW, space=SPACE)

            for turn in range(TURNS):
                pair = asked[-2 * TURNS :][2 * turn : 2 * turn + 2]
                await talk.append(pair)
                if others:
                    said = f"Never mention item {turn}. I have seen it."
                    await memory.session(f"o{turn % 7}", space=SPACE).append(Message.user(said))
                shown = await talk.context(8_000)
                sent += shown.total_tokens - shown.shared_prefix_tokens
                new += sum(count(str(message.content)) for message in pair)
        rates.append(sent / new)
    name = f"uncached tokens for a new one, others write (alone {rates[0]:.3f})"
    report(name, rates[1], rates[0] + 0.05, most=True)


async def forget(chats: Sequence[Chat]) -> None:
    """Forget facts of which other messages speak in other words."""
    rng = random.Random(7)
    sessions = by_date(chats[0])
    talks = {name: list(messages) for name, messages in sessions.messages.items()}
    names, person = list(talks), person_of(chats[0])

    def say(text: str) -> None:
        name = rng.choice(names)
        talks[name].insert(rng.randrange(len(talks[name])), Message.user(text, name=person))

    known_facts = facts()
    for fact in known_facts:
        for text in (fact.text, *fact.sharing, *fact.other):
            say(text)
    left = neither = silent = others = 0
    async with AsyncMemory.open(":memory:") as memory:
        await filled(memory, replace(sessions, messages=talks))
        space = memory.space(SPACE)
        for fact in known_facts:
            done = await space.forget(fact.asked)
            named = {line.text for line in (*done.gone, *done.unproven)}
            for text in fact.sharing:
                neither += text not in named
                if options.list and text not in named:
                    print(f"  {fact.asked}: {text}")
            silent += sum(text in named for text in fact.other)
            others += len(fact.other)
            hits = await memory.search(fact.asked, limit=200, space=SPACE, semantic_dedup=False)
            left += any(hit.text == fact.text for hit in hits)
    many = len(known_facts)
    report(f"forget, of {many} facts left", left, 0, most=True, form=".0f")
    sharing = sum(len(fact.sharing) for fact in known_facts)
    name = f"forget, of {sharing} wordings that share a rare word, neither erased nor named"
    report(name, neither, 0, most=True, form=".0f")
    print(f"| forget, wordings that share none: named | {silent / max(1, others):.3f} | |")


async def cost(_: Sequence[Chat]) -> None:
    """Time a context in a space of 1,000 conversations beside one of 10."""
    took: dict[int, float] = {}
    start = datetime(2026, 1, 1, tzinfo=UTC)
    for many in (10, 1_000):
        async with AsyncMemory.open(":memory:") as memory:
            memory.space(SPACE, person="Ada")
            for number in range(many):
                when = start + timedelta(hours=number)
                said = [
                    Message.user(
                        f"Conversation {number} is about town {number % 97}.", created_at=when
                    ),
                    Message.assistant("Noted.", created_at=when),
                ]
                if number % 10 == 0:
                    wish = f"Always mention harbour {number}."
                    said.insert(0, Message.user(wish, created_at=when))
                await memory.session(f"s{number}", space=SPACE).append(said)
            took[many] = await timed(lambda: _asked(memory))
    name = f"a context of a space of 1,000 beside one of 10 ({took[10]:.2f} ms)"
    report(name, took[1_000] / took[10], 1.3, most=True, form=".2f")


async def _asked(memory: AsyncMemory) -> None:
    session = memory.session(NEW, space=SPACE)
    await session.append(Message.user("And now?"))
    await session.context(4_000)


async def timed(call: Callable[[], Awaitable[None]]) -> float:
    """Return the median of milliseconds, warm."""
    times: list[float] = []
    for turn in range(120):
        began = time.perf_counter()
        await call()
        if turn >= 20:
            times.append(1_000 * (time.perf_counter() - began))
    return median(times)


def main() -> int:
    parts = {
        "wishes": (wishes, "beam"),
        "carried": (carried, "both"),
        "recall": (recall, "locomo"),
        "context": (context, "beam"),
        "updates": (updates, "locomo"),
        "prefix": (prefix, "beam"),
        "forget": (forget, "locomo"),
        "cost": (cost, "beam"),
    }
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=list(parts))
    parser.add_argument("--list", action="store_true")
    parser.parse_args(namespace=options)
    talks = {"beam": list(beam(folder())), "locomo": list(locomo(folder()))}
    talks["both"] = [*talks["beam"], *talks["locomo"]]
    print("| | value | bar |\n|---|---|---|")
    for name in options.parts:
        part, data = parts[name]
        asyncio.run(part(talks[data]))
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
