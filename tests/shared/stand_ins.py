"""What tests put in the place of a counter, a clock, a store and a conversation."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import partial
from inspect import iscoroutinefunction

from hiermem import AsyncMemory, Message, UpdatePolicy
from hiermem.records.run import RecordStore
from hiermem.stores.memory import MemoryStore
from hiermem.stores.sqlite import SQLiteStore

START = datetime(2024, 3, 1, 9, tzinfo=UTC)


def _filled(value, number):
    if callable(value):
        return value(number)
    return value.format(n=number) if isinstance(value, str) else value


def talk(count, said="a short message of turn {n}", *, begin=0, seconds=20, **fields):
    """Return messages of a user and an assistant in turn, the first of them number ``begin``.

    A text with a place ``{n}``, and a function, are given each message's number.
    """
    fields = {"created_at": lambda n: START + timedelta(seconds=seconds * n)} | fields
    return [
        Message(
            "assistant" if n % 2 else "user",
            _filled(said, n),
            **{name: _filled(value, n) for name, value in fields.items()},
        )
        for n in range(begin, begin + count)
    ]


class Intercepted:
    """A store, or a handle of one, whose operations are done by ``around(name, do, *args)``."""

    capabilities = frozenset()

    def __init__(self, inner, around):
        self._inner, self._around = inner, around

    def __getattr__(self, name):
        member = getattr(self._inner, name)
        if name in ("tenant", "tree") and callable(member):
            return lambda *of: Intercepted(member(*of), self._around)
        if name.endswith("_here"):  # a shortcut past the operations
            raise AttributeError(name)
        if not iscoroutinefunction(member):
            return member
        return lambda *args, **more: self._around(name, partial(member, *args, **more), *args)


def counted(store):
    """Return the store, or handle, and how often each of its operations was called."""
    calls = Counter()

    async def count(name, do, *_):
        calls[name] += 1
        return await do()

    return Intercepted(store, count), calls


async def store_of(kind, place=":memory:", **options):
    """Open a store of this kind: "memory", or "sqlite" in a file."""
    return (
        RecordStore(MemoryStore(**options))
        if kind == "memory"
        else RecordStore(await SQLiteStore.open(place, **options))
    )


def memory_over(store, **settings):
    """Return a memory that counts words and makes no pauses."""
    usual = {"token_counter": WordCounter(), "update_policy": UpdatePolicy(batch_delay=0)}
    return AsyncMemory(store=store, **usual | settings)


class WordCounter:
    """A counter that costs nothing: a token is a word."""

    name = "words"

    def count(self, text: str) -> int:
        return len(text.split())


class Clock:
    """A clock that a test moves, and that moves by ``step`` at every look."""

    def __init__(
        self, at: datetime = datetime(2026, 3, 1, 12, tzinfo=UTC), step: timedelta = timedelta(0)
    ) -> None:
        self.at, self.step = at, step

    def __call__(self) -> datetime:
        self.at += self.step
        return self.at
