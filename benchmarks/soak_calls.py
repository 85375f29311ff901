"""The calls of the soak test (``soak.py``), and what must be stored after those that returned."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from random import Random
from typing import TypeVar

from hiermem import AsyncMemory, HierarchyConfig, Message, UpdatePolicy
from hiermem.errors import ConflictError, HiermemError, NotFoundError
from hiermem.testing.llms import ScriptedLLM

T = TypeVar("T")
ROOTS = tuple(f"s{number}" for number in range(12))
#: How often a worker does what; "fork" is the deletion of a fork where it has several already.
MIX = {"append": 36, "resend": 4, "edit": 12, "erase": 8, "fork": 6, "context": 12, "update": 12,
       "search": 10}  # fmt: skip
FORKS, TRIES = 3, 100
VOCABULARY = ("harbour", "pump", "valve", "order", "refund", "ferry", "Ada", "must", "pay", "59.90",
              "EUR", "by", "2024-05-01", "now")  # fmt: skip


@dataclass
class Call:
    """A call: what it is to do, when it began and ended, and what came of it.

    ``numbers`` is the number of messages to append, the indices to edit or erase, the length of a
    fork, or whether a deletion leaves the forks their messages. ``placed`` are indices of appended
    messages. A call that was ``killed`` is made again, and one that was ``refused`` met an erasure
    or a deletion by another worker.
    """

    kind: str
    session: str
    name: str = ""
    slot: int = 0
    numbers: tuple[int, ...] = ()
    begun: float = 0.0
    ended: float = inf
    killed: bool = False
    refused: bool = False
    placed: tuple[int, ...] = ()

    @property
    def keys(self) -> list[str]:
        """The keys of the messages to append."""
        many = self.numbers[0] if self.kind in {"append", "resend"} else 0
        return [f"{self.name}-{place}" for place in range(many)]

    @property
    def word(self) -> str:
        """The word of an edit's text; of a fork, its id."""
        return word_of(f"{self.name}-0")


async def chosen(
    memory: AsyncMemory, luck: Random, mine: list[str], others: list[str], earlier: list[Call]
) -> Call:
    """Choose a call. To a fork only the worker appends whose own it is, and deletes it."""
    (kind,) = luck.choices(list(MIX), list(MIX.values()))
    if kind == "fork" and len(mine) >= FORKS:
        return Call("delete", luck.choice(mine), numbers=(luck.randrange(2),))
    again = [call for call in earlier if call.keys and call.session in {*ROOTS, *mine}]
    if kind == "resend" and again:
        return replace(luck.choice(again), kind="resend", ended=inf, placed=())
    session = luck.choice([*ROOTS, *mine, *others])
    length = await insist(memory.session(session).count)
    if kind in {"append", "resend"} or not length:
        size = luck.choice([1, 1, 1, 2, 3, 5, 10, 30])
        return Call("append", luck.choice([*ROOTS, *mine]), numbers=(size,))
    numbers: tuple[int, ...] = (luck.randrange(length),)
    if kind == "erase":
        numbers = tuple({luck.randrange(length) for _ in range(luck.randint(1, 3))})
    elif kind == "fork":
        numbers = (luck.randint(1, length),)
    return Call(kind, session, numbers=numbers)


def word_of(key: str) -> str:
    return f"zq{key.replace('-', 'x')}qz"


def said(word: str) -> str:
    """Write a text of some words or of some kilobytes that holds the word, always the same."""
    luck = Random(word)
    text = luck.choices(VOCABULARY, k=luck.choice([6, 15, 30, 60, 600]))
    text[luck.randrange(len(text))] = word
    return f"{' '.join(text)}. The code is {word}."


def message_of(key: str) -> Message:
    """Write the message of a key; its text, its metadata and a name now and then hold its word."""
    word, luck = word_of(key), Random(key)
    make = luck.choice([Message.user, Message.assistant])
    name = f"Ada {word}" if luck.random() < 0.1 else None
    return make(said(word), key=key, name=name, metadata={"note": word})


async def opened(place: str, schema: str, llm: ScriptedLLM | None = None) -> AsyncMemory:
    config, policy = HierarchyConfig.by_tokens(target=500), UpdatePolicy(regenerate_on_edit=True)
    if not place.startswith("postgresql:"):
        return await AsyncMemory.open(place, llm=llm, config=config, update_policy=policy)
    from hiermem.stores.postgres import PostgresStore

    store = await PostgresStore.open(place, schema=schema)
    return AsyncMemory(store=store, llm=llm, config=config, update_policy=policy)


async def insist(call: Callable[[], Awaitable[T]]) -> T:
    """Make a call, and again where its error says that this may help."""
    for _ in range(TRIES):
        try:
            return await call()
        except HiermemError as error:
            if not error.retryable:
                raise
            await asyncio.sleep(0.05)
    return await call()


async def attempt(memory: AsyncMemory, call: Call) -> None:
    """Make the call until it returns, or is refused because of what another worker has done."""
    try:
        call.placed = await insist(lambda: _made(memory, call))
    except NotFoundError:
        if call.session in ROOTS:
            raise
        call.refused = True
    except ConflictError as error:
        call.refused = call.kind == "edit" and error.kind == "withdrawn"
        if not (call.refused or (call.kind == "fork" and call.killed and error.kind == "exists")):
            raise
    call.ended = time.monotonic()


async def _made(memory: AsyncMemory, call: Call) -> tuple[int, ...]:
    session, luck = memory.session(call.session), Random(call.name)
    words = " ".join(luck.sample(VOCABULARY, 3))
    if call.kind in {"append", "resend"}:
        return tuple(await session.append(map(message_of, call.keys)))
    if call.kind == "edit":
        await session.edit(call.numbers[0], said(call.word))
    elif call.kind == "erase":
        await session.erase(call.numbers)
    elif call.kind == "fork":
        await session.fork(call.word, at=call.numbers[0])
    elif call.kind == "delete":
        await session.delete(forks="keep" if call.numbers[0] else "all")
    elif call.kind == "update":
        await session.update()
    elif call.kind == "context":
        query, view = luck.choice([None, words]), luck.choice("ab")
        await session.context(luck.choice([4_000, 9_000]), query=query, view=view)
    elif luck.random() < 0.5:
        await memory.search(words)
    else:
        await session.search(words)
    return ()


def disorder(calls: Sequence[Call]) -> int:
    """Count the calls that stand before one that had ended when they began."""
    earliest, wrong = inf, 0
    for call in reversed(calls):
        wrong += earliest < call.begun
        earliest = min(earliest, call.ended)
    return wrong


class Model:
    """What must be stored after calls that have all ended."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self.forks: dict[str, Call] = {}
        self.appends: defaultdict[str, list[Call]] = defaultdict(list)
        self.edits: defaultdict[tuple[str, int], list[Call]] = defaultdict(list)
        self.gone: set[str] = set()
        #: Where a refused call may have erased a part, or a fork inherited what a deletion left.
        self.unsure: set[str] = set()
        self._keys: dict[str, dict[int, str]] = {}
        for call in calls:
            if call.kind == "append":
                self.appends[call.session].append(call)
            elif call.kind == "edit":
                self.edits[call.session, call.numbers[0]].append(call)
            elif call.kind == "fork" and not call.refused:
                self.forks[call.word] = call
        placed = {call.name: call.placed for those in self.appends.values() for call in those}
        #: How often messages that were sent again got other places.
        self.moved = sum(one.kind == "resend" and placed[one.name] != one.placed for one in calls)
        deleted = {call.session for call in calls if call.kind == "delete"}
        for call in calls:
            if call.kind == "erase":
                found = self.keys(call.session)
                keys = {found[index] for index in call.numbers if index in found}
                (self.unsure if call.refused else self.gone).update(keys)
            elif call.kind == "delete" and not call.numbers[0]:
                self.gone |= self.own(call.session)
                above = self.forks[call.session].session
                while above in deleted:
                    self.unsure |= self.own(above)
                    above = self.forks[above].session
        self.sessions = {*self.appends, *self.forks} - deleted

    def own(self, session: str) -> set[str]:
        """Return the keys of what was appended to the session itself."""
        return {key for call in self.appends[session] for key in call.keys}

    def keys(self, session: str) -> dict[int, str]:
        """Return the keys of a session's messages by index, the inherited ones too."""
        if session not in self._keys:
            fork, found = self.forks.get(session), dict[int, str]()
            if fork is not None:
                above = self.keys(fork.session)
                found = {index: key for index, key in above.items() if index < fork.numbers[0]}
            for call in self.appends[session]:
                found.update(zip(call.placed, call.keys, strict=False))
            self._keys[session] = found
        return self._keys[session]

    def edited(
        self, session: str, index: int, until: Call | None = None
    ) -> dict[str, tuple[Call, bool]]:
        """Return by word the edits that a message may show, and whether it must show them.

        A fork shows those that had ended when it was made, and may show those that had begun.
        """
        fork, found = self.forks.get(session), dict[str, tuple[Call, bool]]()
        if fork is not None and index < fork.numbers[0]:
            found = self.edited(fork.session, index, fork)
        for call in self.edits.get((session, index), ()):
            if until is None or call.begun < until.ended:
                must = not call.refused and (until is None or call.ended < until.begun)
                found[call.word] = call, must
        return found
