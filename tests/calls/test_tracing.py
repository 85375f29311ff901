"""The engine tells a tracer of calls, runs, contexts and searches, and how they end."""

from contextlib import contextmanager

import pytest

from hiermem import AsyncMemory, BudgetTooSmallError, Message
from hiermem.tracing import set_tracer, span

CANARY = "zebra"


@pytest.fixture
def told():
    """Return what a tracer was told: kind, attributes, the kinds around it, and how it ended."""
    found, around = [], []

    @contextmanager
    def tracer(kind, attributes):
        mine = {"kind": kind, "in": tuple(around), "error": None, **attributes}
        found.append(mine)
        around.append(kind)
        try:
            yield lambda **more: mine.update(more)
        except BaseException as error:
            mine["error"] = type(error)
            raise
        finally:
            around.pop()

    set_tracer(tracer)
    yield found
    set_tracer(None)


async def test_a_tracer_is_told_of_what_is_done_and_never_of_what_is_said(told):
    """Broken if a trace lacked what took the time, or took a message out of the process."""

    async def model(request):
        return f"{CANARY}: the pumps ran, and Ada wrote down how fast each of them was."

    async with AsyncMemory.open(":memory:", llm=model) as memory:
        session = memory.session("s")
        await session.append(Message.user(f"{CANARY} {n} ran well. " * 40) for n in range(12))
        await session.update(concurrency=1)
        context = await session.context(1_500, query=f"{CANARY} 3", system=CANARY)
        await memory.search(f"{CANARY} 3")
        with pytest.raises(BudgetTooSmallError):
            await session.context(20)
    calls = [each for each in told if each["kind"] == "call"]
    run = next(each for each in told if each["kind"] == "run")
    assert calls
    assert all(each["run"] == run["run"] and each["in"][0] == "run" for each in calls)
    assert (run["task"], run["subject"], run["calls"]) == ("update", "s", len(calls))
    shown, refused = (each for each in told if each["kind"] == "context")
    assert (shown["tokens"], shown["coverage"]) == (context.total_tokens, 1.0)
    assert shown["shown_messages"] == len(context.shown.messages)
    quarters = tuple(quarter.share for quarter in context.shown.by_quarter)
    assert shown["shown_by_quarter"] == quarters, "covered is not shown"
    assert (shown["error"], refused["error"]) == (None, BudgetTooSmallError)
    assert [each["in"] for each in told if each["kind"] == "search"] == [("context",), ()]
    assert CANARY not in str(told)


@pytest.mark.parametrize("where", ["begin", "note", "end", "swallow"])
async def test_a_tracer_that_fails_costs_nothing_but_its_spans(where, caplog):
    """Broken if a paid answer were lost, or an error hidden, by what only watches."""

    @contextmanager
    def tracer(kind, attributes):
        def note(**more):
            if where == "note":
                raise ValueError(CANARY)

        if where == "begin":
            raise ValueError(CANARY)
        try:
            yield note
        except BudgetTooSmallError:
            if where != "swallow":
                raise
        if where == "end":
            raise ValueError(CANARY)

    async def model(request):
        return "The pumps ran, and Ada wrote down how fast each of them was."

    set_tracer(tracer)
    try:
        async with AsyncMemory.open(":memory:", llm=model) as memory:
            session = memory.session("s")
            await session.append(Message.user(f"Pump {n} ran well. " * 40) for n in range(12))
            await session.update(wait=True)
            assert sum((await session.status()).unfinished.values()) == 0
            assert await session.search("pump 3")
            with pytest.raises(BudgetTooSmallError):
                await session.context(20)
    finally:
        set_tracer(None)
    assert CANARY not in caplog.text
    assert ("the tracer failed" in caplog.text) == (where != "swallow")


def test_without_a_tracer_a_span_is_one_and_the_same_object():
    """Broken if what nobody watches cost anything."""
    assert span("context", subject="s") is span("search")
    with span("run") as note:
        note(calls=1)
