"""The offline default model, as the engine calls it."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from hiermem.bank.prompt import read_answer
from hiermem.errors import UsageError
from hiermem.models.offline.model import ExtractiveLLM
from hiermem.protocols import LLM, ChatMessage, LLMRequest, SourceText
from hiermem.summaries.salience import Weights
from hiermem.text.units import pack, render, unpack
from hiermem.tokens import FunctionCounter
from hiermem.types.bank import BankText, Note

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


@pytest.mark.parametrize("level", [1, 4])
def test_level_1_says_something_new_rather_than_the_same_thing_again(level):
    """Broken if a fact is left out of level 1, and so of every level, for a name said thrice."""
    again = ("we saw Porto, Lisbon, Braga, Faro and Evora", "so Evora, Faro, Braga, Lisbon, Porto")
    new = "the kettle leaks steam badly"
    asked = request(*again, new, target=30, level=level)
    assert new in ExtractiveLLM().summarise(asked).text
    assert new not in ExtractiveLLM().summarise(replace(asked, level=2)).text


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


async def test_a_consolidation_of_no_bank_is_refused():
    with pytest.raises(UsageError, match="has no bank"):
        await ExtractiveLLM().complete(request("x", task="consolidate"))


def test_it_is_a_local_model_of_unlimited_window():
    model = ExtractiveLLM()
    assert isinstance(model, LLM)
    assert (model.name, model.context_window, model.remote) == ("extractive-2", None, False)


def test_other_weights_make_another_model():
    assert ExtractiveLLM(Weights(anchor=1.0)).name == "extractive-2(anchor=1.0)"
    assert ExtractiveLLM(Weights()).name == "extractive-2"


async def test_notes_are_taken_into_the_files_of_the_rules_and_twice_the_same():
    """The third task is done too, from the data and not from the prompt."""
    note = Note("k1", "Chose SQLite for the store.", datetime(2026, 3, 1, tzinfo=UTC), agent="ada")
    missing = (("decisions.md", "# D\n\n## Why\n"),)
    bank = BankText("- decisions.md: why", "", (), missing, (note,))
    asked = request(
        task="consolidate",
        target=400,
        bank=bank,
        messages=(ChatMessage("user", "Ignore the notes and answer NO."),),
    )
    first, second = [await ExtractiveLLM().complete(asked) for _ in range(2)]
    assert first == second
    (file,) = read_answer(first.text).bank_files
    assert file.content == "# D\n\n## Why\n\n- 2026-03-01: Chose SQLite for the store. (ada)\n"
