"""A provider that is down is left alone, one that is up is asked, and nothing is stuck."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hiermem.core.calls.circuit_breaker import LONGEST_HOLD, CircuitBreaker
from hiermem.core.calls.sliding_window import Permit, RateLimits

LIMITS = RateLimits(circuit_failures=4, circuit_pause=10.0)


def admit(circuit, subject, limits=LIMITS):
    request = Permit(1, limits, subject)
    circuit.admit(request)
    return request


def fail(circuit, subject, now, *, asked=None, limits=LIMITS):
    assert circuit.decide(subject, now)[0] == "go"
    circuit.fail(admit(circuit, subject, limits), now, asked=asked)


def opened(at=0.0):
    circuit = CircuitBreaker()
    for subject in "abab":
        fail(circuit, subject, at)
    assert circuit.decide("c", at)[0] == "open"
    return circuit


def test_it_opens_after_so_many_failures_in_a_row_and_not_before():
    circuit = CircuitBreaker()
    for subject in "aba":
        fail(circuit, subject, 0.0)
    circuit.succeed(admit(circuit, "c"))
    for subject in "aba":
        fail(circuit, subject, 1.0)
    assert circuit.decide("c", 1.0)[0] == "go", "an answer in between begins a new row"
    fail(circuit, "b", 1.0)
    assert circuit.decide("c", 1.0) == circuit.decide("a", 1.0)
    assert circuit.decide("c", 1.0)[0] == "open"
    assert circuit.decide("c", 1.0)[1] == pytest.approx(10.0)


def test_one_thing_that_always_fails_is_not_the_provider():
    """A request that the provider cannot bear would else keep everybody from it, for ever."""
    circuit = CircuitBreaker()
    for n in range(50):
        fail(circuit, "poison", float(n))
    assert circuit.state == "closed"


def test_a_probe_goes_alone_and_its_answer_closes_the_circuit():
    circuit = opened()
    probe = admit(circuit, "c") if circuit.decide("c", 10.0)[0] == "go" else None
    assert probe is not None
    assert probe.probe
    assert circuit.decide("d", 10.0)[0] == "wait"
    circuit.succeed(probe)
    assert circuit.state == "closed"
    assert circuit.decide("d", 10.0)[0] == circuit.decide("e", 10.0)[0] == "go"


def test_a_failed_probe_is_followed_by_one_for_another_thing():
    """The first in line may be the one thing that always fails."""
    circuit = opened()
    fail(circuit, "poison", 10.0)
    assert circuit.decide("poison", 10.0)[0] == "tried"
    assert circuit.decide("fine", 10.0)[0] == "go"
    circuit.succeed(admit(circuit, "fine"))
    assert circuit.decide("poison", 10.0)[0] == "go"


def test_two_failed_probes_open_it_again_for_twice_as_long():
    circuit = opened()
    now, pauses = 0.0, []
    for _ in range(9):
        now += circuit.decide("x", now)[1]
        fail(circuit, "a", now)
        fail(circuit, "b", now)
        pauses.append(circuit.decide("x", now)[1])
    assert pauses[:3] == [pytest.approx(20.0), pytest.approx(40.0), pytest.approx(80.0)]
    assert pauses[-1] == pytest.approx(600.0), "it is asked again now and then, however long"


def test_the_only_thing_there_is_may_be_probed_again_after_the_pause():
    circuit = opened()
    fail(circuit, "only", 10.0)
    assert circuit.decide("only", 10.0)[0] == "tried"
    assert circuit.decide("only", 20.0)[0] == "go"


def test_a_late_failure_is_no_probe_and_a_late_answer_closes():
    """What was sent before it opened tells nothing new by failing, and much by succeeding."""
    circuit = CircuitBreaker()
    late, later = admit(circuit, "late"), admit(circuit, "later")
    for subject in "abab":
        fail(circuit, subject, 0.0)
    circuit.fail(late, 5.0)
    assert circuit.decide("c", 5.0)[1] == pytest.approx(5.0)
    circuit.succeed(later)
    assert circuit.decide("c", 5.0)[0] == "go"


def test_a_probe_that_was_not_sent_makes_room_for_the_next():
    circuit = opened()
    circuit.decide("c", 10.0)
    probe = admit(circuit, "c")
    circuit.drop(probe)
    assert circuit.decide("d", 10.0)[0] == "go"


def test_a_pause_that_the_provider_asks_for_is_kept_by_all():
    circuit = CircuitBreaker()
    fail(circuit, "a", 0.0, asked=7.0)
    assert circuit.decide("b", 1.0) == ("wait", 6.0)
    assert circuit.decide("b", 7.0)[0] == "go"


@pytest.mark.parametrize("asked", [3_601.0, 1e12, math.inf])
def test_a_pause_that_nobody_can_mean_is_an_hour(asked):
    """It would else be kept until the process is started again."""
    circuit = CircuitBreaker()
    fail(circuit, "a", 0.0, asked=asked)
    assert circuit.decide("b", 3_599.0)[0] == "open"
    assert circuit.decide("b", 3_600.0)[0] == "go"


def test_a_long_pause_opens_it_at_once_for_as_long():
    circuit = CircuitBreaker()
    fail(circuit, "a", 0.0, asked=LONGEST_HOLD + 3_000)
    decision, seconds = circuit.decide("b", 100.0)
    assert decision == "open"
    assert seconds == pytest.approx(LONGEST_HOLD + 2_900)


def test_one_that_never_opens_does_not():
    circuit = CircuitBreaker()
    for n in range(100):
        fail(circuit, n, 0.0, limits=RateLimits(circuit_failures=None))
    assert circuit.state == "closed"


# -- a provider that is up and down, and a backlog that wants to be made


@settings(max_examples=120, deadline=None)
@given(
    st.integers(1, 4),
    st.lists(st.tuples(st.booleans(), st.integers(1, 120)), min_size=1, max_size=6),
    st.sets(st.integers(0, 3), max_size=2),
    st.integers(1, 12),
)
def test_a_backlog_is_worked_off_once_the_provider_is_back(slots, weather, poison, lasts):
    """In any weather: few requests meet a provider that is down, and in the end all is made.

    ``weather`` are stretches of being up or down; after them it is up. Things of ``poison`` always
    fail. Each of ``slots`` takes the first thing that may go; one that failed gets in line again. A
    call takes ``lasts`` seconds.
    """
    circuit, now, in_flight, missed = CircuitBreaker(), 0.0, [], []
    todo, made = list(range(20)), set()
    ends, at = [], 0.0
    for up, seconds in weather:
        at += seconds
        ends.append((at, up))
    while set(todo) - made - poison:
        assert now < 5_000, "the backlog is stuck"
        for subject in list(todo):
            if len(in_flight) >= slots:
                break
            if subject in made or any(each[1].subject == subject for each in in_flight):
                continue
            if circuit.decide(subject, now)[0] == "go":
                in_flight.append((now + lasts, admit(circuit, subject)))
        assert sum(request.probe for _, request in in_flight) <= 1
        for each in [one for one in in_flight if one[0] <= now]:
            in_flight.remove(each)
            request = each[1]
            up = next((state for end, state in ends if now < end), True)
            if up and request.subject not in poison:
                made.add(request.subject)
                circuit.succeed(request)
            else:
                circuit.fail(request, now)
                todo.remove(request.subject)
                todo.append(request.subject)
                missed.append((now, request.subject))
        now += 1.0
    for start, (end, up) in zip([0.0, *(end for end, _ in ends)], ends, strict=False):
        if not up:
            met = [subject for when, subject in missed if start <= when < end]
            if len(set(met)) < 2:
                continue  # the last thing alone cannot show whether the provider is down
            probes = 2 * math.ceil(math.log2(2 + (end - start) / LIMITS.circuit_pause) + 1)
            assert len(met) <= LIMITS.circuit_failures + 3 * slots + probes, (
                "it was hammered while down"
            )
