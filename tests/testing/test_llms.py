"""The fake models: the good one passes every check, and each fault is what it says it is."""

import asyncio
import random
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kinds import of_kind
from sampling import drawn

from hiermem.errors import ModelError
from hiermem.prompts import load
from hiermem.prompts.template import Facts, Length, render
from hiermem.protocols import LLMRequest, SourceText
from hiermem.summaries.assess import Standard, anchor_limit, assess_written, repair, source_of
from hiermem.testing.llms import FAULTS, RETURNING, FaultyLLM, ScriptedLLM
from hiermem.tokens import FunctionCounter

NOW = datetime(2024, 3, 15, tzinfo=UTC)
COUNTER = FunctionCounter(lambda text: len(text.split()) + text.count("\n"), name="words")
STYLES = {1: "detailed", 2: "thematic", 3: "executive"}


def ask(level=1, seed=0, words=400, target=150, limit=None):
    chance = random.Random(seed)
    said = (
        "we moved the launch because the harbour office at pier 7 wants 37.50 EUR and Ada said "
        "never to deploy booking/seats.py on 2024-03-15 before v2.1 is out and the team agreed"
    )
    stock = said.split()
    inputs = tuple(
        SourceText(n, "user", "Ada", "2024-03-15", " ".join(chance.choices(stock, k=words // 10)))
        for n in range(10)
    )
    template = load(level, STYLES[level])
    limit = limit or target * 3 // 2
    messages = render(
        template,
        inputs,
        facts=Facts(None, (), NOW, NOW, 10),
        length=Length(target, limit),
    )
    return template, LLMRequest("summarise", messages, inputs, target, limit, COUNTER, level)


def judge(template, request, response):
    standard = Standard(
        source_of(request, limit=anchor_limit(request.target_tokens)),
        input_tokens=sum(COUNTER.count(s.text) + 4 for s in request.inputs),
    )
    return assess_written(request, standard, response)


@drawn(30)
@given(level=st.integers(1, 3), seed=st.integers(0, 999), target=st.integers(60, 250))
async def test_the_scripted_model_answers_what_was_asked(level, seed, target):
    template, request = ask(level, seed, target=target)
    answer = await ScriptedLLM().complete(request)
    draft = judge(template, request, answer)
    assert draft.fit
    assert draft.tokens <= request.target_tokens
    assert (await ScriptedLLM().complete(request)).text == answer.text


@pytest.mark.parametrize("target", range(5, 60, 6))
async def test_the_scripted_model_says_something_in_a_few_tokens(target):
    """Else its answer says nothing and is refused, and a test takes that for a defect."""
    template, request = ask(target=target, limit=max(20, target * 3 // 2), words=10)
    draft = judge(template, request, await ScriptedLLM().complete(request))
    assert draft.fit, draft.problems
    assert any(line and line[0] != "#" for line in draft.text.splitlines())


@pytest.mark.parametrize("mark", ["", ";", ",", ":", " -"])
async def test_a_piece_that_the_scripted_model_cuts_out_does_not_look_cut_off(mark):
    """Else its answer is refused each time, and a test takes that for a defect of the library."""
    _, request = ask()
    words = " ".join(f"word{n}{mark}" for n in range(400))
    inputs = (SourceText(0, "user", "Ada", "2024-03-15", words),)
    request = replace(request, inputs=inputs)
    answer = await ScriptedLLM().complete(request)
    assert "word" in answer.text
    assert repair(answer, request=request).finish_reason == "stop"
    assert repair(answer, request=request).text == answer.text


@pytest.mark.parametrize("fault", RETURNING)
async def test_no_fault_passes_for_a_good_answer(fault):
    template, request = ask()
    try:
        answer = await FaultyLLM(ScriptedLLM(), [fault]).complete(request)
    except (ModelError, RuntimeError):
        return
    draft = judge(template, request, answer)
    assert draft.problems
    assert not draft.fit


async def test_a_call_that_never_returns_can_be_cancelled():
    _, request = ask()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(FaultyLLM(None, ["never"]).complete(request), 0.01)
    assert "never" in FAULTS


async def test_the_same_seed_gives_the_same_faults():
    _, request = ask()
    seen = []
    for _ in range(2):
        model = FaultyLLM(ScriptedLLM(), rate=0.6, seed=11)
        for _ in range(20):
            try:
                await model.complete(request)
            except (ModelError, RuntimeError):
                continue
        seen.append(model.failed)
    assert seen[0] == seen[1]
    assert sum(seen[0].values()) > 5


async def test_a_stated_window_is_kept():
    _, request = ask()
    with pytest.raises(ModelError, check=of_kind("overflow")):
        await ScriptedLLM(context_window=100).complete(request)
