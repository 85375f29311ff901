"""A plain function as a model: whatever shape it has, it answers, and wrong answers are told."""

import functools
import threading

import pytest

from hiermem.errors import ConfigError, UsageError
from hiermem.models.function import FunctionLLM
from hiermem.protocols import LLM, LLMRequest, LLMResponse
from hiermem.tokens import FunctionCounter

REQUEST = LLMRequest(
    task="summarise",
    messages=(),
    inputs=(),
    target_tokens=10,
    max_tokens=15,
    counter=FunctionCounter(len, name="chars"),
)


async def waiting(request):
    return f"at most {request.max_tokens}"


class Callable:
    async def __call__(self, request):
        return LLMResponse("from an object", model="own")


async def test_text_responses_coroutines_and_objects_are_all_taken():
    assert (await FunctionLLM(lambda request: "text").complete(REQUEST)).text == "text"
    assert (await FunctionLLM(waiting).complete(REQUEST)).text == "at most 15"
    assert (await FunctionLLM(Callable()).complete(REQUEST)).model == "own"
    wrapped = FunctionLLM(functools.partial(waiting))
    assert (await wrapped.complete(REQUEST)).text == "at most 15"


async def test_an_ordinary_function_does_not_hold_up_the_event_loop():
    seen = []
    await FunctionLLM(lambda request: seen.append(threading.current_thread()) or "x").complete(
        REQUEST
    )
    assert seen[0] is not threading.main_thread()


async def test_what_is_no_answer_is_refused():
    with pytest.raises(UsageError, match="returned int"):
        await FunctionLLM(lambda request: 7).complete(REQUEST)


def test_it_is_a_model_that_may_cost_money_unless_it_is_said_not_to():
    model = FunctionLLM(waiting, name="mine", context_window=100)
    assert isinstance(model, LLM)
    assert (model.name, model.context_window, model.remote) == ("mine", 100, True)
    assert not FunctionLLM(waiting, remote=False).remote


@pytest.mark.parametrize("wrong", [{"name": ""}, {"context_window": 0}])
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(ConfigError):
        FunctionLLM(waiting, **wrong)
    with pytest.raises(UsageError):
        FunctionLLM("not callable")
