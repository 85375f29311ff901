"""What calls cost: by what was stated, and by nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiermem import Memory, Prices, UsageError
from hiermem.calls.limits import PER
from hiermem.testing.llms import ScriptedLLM
from hiermem.types.transaction import NO_COST, Cost

tokens = st.integers(0, 10**9)
price = st.floats(0, 1_000, allow_nan=False)


@given(tokens, tokens, tokens, price, price, price)
def test_tokens_from_the_cache_cost_their_own_price_and_the_rest_the_full_one(
    came, went, cached, full, cheap, out
):
    prices = Prices(full, out, cached=cheap)
    held = min(cached, came)
    parts = (prices.cost(came - held, 0), held * cheap / PER, prices.cost(0, went))
    assert prices.cost(came, went, cached=cached) == pytest.approx(sum(parts))
    assert Prices(full, out).cost(came, went, cached=cached) == pytest.approx(
        Prices(full, out).cost(came, went)
    ), "without a price of its own, the cache is no cheaper"


@given(st.lists(st.none() | price))
def test_what_is_unknown_adds_nothing_and_is_not_taken_for_free(costs):
    known = [cost for cost in costs if cost is not None]
    total = sum((Cost(1, 2, 3, cost) for cost in costs), NO_COST)
    assert (total.calls, total.tokens) == (len(costs), 5 * len(costs))
    assert total.cost == (pytest.approx(sum(known)) if known else None)


@pytest.mark.parametrize("wrong", ["1", None, True, -1, float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["input", "output", "context", "cached"])
def test_a_price_is_a_finite_number_of_nought_or_more(name, wrong):
    given = {"input": 1.0, "output": 1.0, name: wrong}
    if wrong is None and name in ("context", "cached"):
        assert getattr(Prices(**given), name) is None
        return
    with pytest.raises(UsageError, match=name):
        Prices(**given)


def test_a_model_whose_prices_are_none_is_refused_where_it_is_given():
    llm = ScriptedLLM()
    llm.prices = {"input": 1.0}
    with pytest.raises(UsageError, match="prices"), Memory.open(":memory:", llm=llm):
        pass
