"""The offline default model, as the engine calls it."""

import asyncio

import pytest

from hiermem.core.generation.salience import Weights
from hiermem.core.text.units import pack, render, unpack
from hiermem.errors import UsageError
from hiermem.models.extractive import ExtractiveLLM
from hiermem.protocols import LLM, LLMRequest, SourceText
from hiermem.tokens import FunctionCounter

COUNTER = FunctionCounter(lambda text: (len(text) + 3) // 4, name="quarter")


def request(*texts: str, target: int = 60, task: str = "summarise", **changes) -> LLMRequest:
    inputs = tuple(
        SourceText(index, "user", "Ann", "2024-03-15", text) for index, text in enumerate(texts)
    )
    fields = {"messages": (), "inputs": inputs, "target_tokens": target, "max_tokens": 2 * target}
    return LLMRequest(task=task, counter=COUNTER, **(fields | changes))


async def test_it_summarises_within_the_target_and_tells_where_from():
    answer = await ExtractiveLLM().complete(
        request("We moved to Porto. " * 3, "The flat costs 900 a month.", "Lovely weather there.")
    )
    assert COUNTER.count(answer.text) <= 60
    assert "[2024-03-15]\nAnn: " in answer.text
    assert render(answer.units) == answer.text
    assert unpack(pack(answer.units), answer.text) == answer.units
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (0, 0)


async def test_the_hard_limit_holds_where_it_is_below_the_target():
    answer = await ExtractiveLLM().complete(request("We sold 7 boats. " * 50, max_tokens=9))
    assert COUNTER.count(answer.text) <= 9


async def test_children_are_summarised_from_their_units_not_their_prose():
    below = await ExtractiveLLM().complete(request("We moved to Porto in 2019.", "We got 2 cats."))
    child = SourceText(None, "user", "Summary", "", below.text, units=below.units)
    above = await ExtractiveLLM().complete(request(inputs=(child,), target=20))
    assert above.units
    assert all(unit.index is not None and unit.speaker == "Ann" for unit in above.units)


async def test_many_calls_at_once_give_what_one_gives():
    model, asked = (
        ExtractiveLLM(),
        request("We moved to Porto. We got 2 cats. I never ski.", target=12),
    )
    answers = await asyncio.gather(*[model.complete(asked) for _ in range(20)])
    assert len({answer.text for answer in answers}) == 1


@pytest.mark.parametrize("texts", [(), ("",), ("   ", "\n")])
async def test_nothing_to_summarise_gives_an_empty_answer(texts):
    assert (await ExtractiveLLM().complete(request(*texts))).text == ""


@pytest.mark.parametrize("task", ["consolidate"])
async def test_other_tasks_are_refused_by_name(task):
    with pytest.raises(UsageError, match=task):
        await ExtractiveLLM().complete(request("x", task=task))


def test_it_is_a_local_model_of_unlimited_window():
    model = ExtractiveLLM()
    assert isinstance(model, LLM)
    assert (model.name, model.context_window, model.remote) == ("extractive-1", None, False)


def test_other_weights_make_another_model():
    assert ExtractiveLLM(Weights(anchor=1.0)).name == "extractive-1(anchor=1.0)"
    assert ExtractiveLLM(Weights()).name == "extractive-1"
