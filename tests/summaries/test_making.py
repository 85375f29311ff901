"""The decision for a node, driven by hand: what it asks for, and which text serves in the end."""

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling import drawn

from hiermem.calls.claim import ClaimLostError
from hiermem.config import HierarchyConfig, UpdatePolicy
from hiermem.errors import SpendLimitError, StoreError
from hiermem.models.offline.model import ExtractiveLLM
from hiermem.prompts import load
from hiermem.protocols import SourceText
from hiermem.summaries import making, plan
from hiermem.summaries.assess import AttemptCount, Draft
from hiermem.summaries.checks import Problem
from hiermem.summaries.inputs import Inputs, Labels
from hiermem.summaries.making import Ask, LookUp, NoteAttempts, ReadInputs, UnfitError
from hiermem.tokens import FunctionCounter

sys.path.insert(0, str(Path(__file__).parent))
from test_status import NOW, node, revision

WORDS = FunctionCounter(lambda text: len(text.split()), name="words")
TEXT = "We sail on Friday. " * 100
INPUTS = Inputs((SourceText(0, "user", "Ada", "", TEXT),), ("h0",), (), 900, "conversation")
GOOD = Draft("We sail on Friday.", 4, (), model="m")
UNFIT = replace(GOOD, text="  ", problems=(Problem("empty", "It said nothing."),))
ERRORS = (
    UnfitError("rejected", "echo", attempts=2),
    UnfitError("transient", "late"),
    UnfitError("permanent", "gone", attempts=1),
    SpendLimitError("max_calls"),
    ClaimLostError(),
)


def run_of(**settings):
    """Return what a run decides by: a model "m" and its stand-in."""
    config, policy = HierarchyConfig.by_tokens(), settings.pop("policy", UpdatePolicy())

    def level_plan(level, model=None):
        template = load(level, config.level(level).style)
        name = model.name if model else "m"
        return plan.level_plan(level, template, config=config, model=name, counter="words")

    return SimpleNamespace(
        **{
            "run_id": "run",
            "config": config,
            "policy": policy,
            "counter": WORDS,
            "fallback": ExtractiveLLM(),
            "is_deterministic": False,
            "time": lambda: NOW,
            "plan": level_plan,
            "labels": lambda inputs: Labels(("sea",), ("Ada",)),
        }
        | settings
    )


def drive(given_node, run=None, *, model=(GOOD,), stand_in=GOOD, **answers):
    """Drive a decision with these answers by kind; return the outcome and what was asked for."""
    known = {
        "ReadInputs": INPUTS,
        "NeedRevisions": [],
        "NeedNodes": [],
        "LookUp": AttemptCount(),
        "NoteAttempts": AttemptCount(),
    } | answers
    decision, asked = making.make(given_node, run or run_of()), []
    drafts = iter(model)

    def answer(request):
        if callable(request):
            return request()
        asked.append(request)
        if not isinstance(request, Ask):
            return known[type(request).__name__]
        found = next(drafts) if request.prompts else stand_in
        if isinstance(found, Exception):
            raise found
        return found

    step = partial(decision.send, None)
    while True:
        try:
            request = step()
        except StopIteration as done:
            return done.value, asked
        try:
            several = isinstance(request, tuple)
            reply = tuple(map(answer, request)) if several else answer(request)
            step = partial(decision.send, reply)
        except (*map(type, ERRORS), StoreError) as error:
            step = partial(decision.throw, error)


def kinds(asked):
    return [type(request) for request in asked]


def test_a_new_node_takes_one_question_and_its_attempts_are_forgotten():
    outcome, asked = drive(node())
    assert kinds(asked) == [ReadInputs, LookUp, Ask, NoteAttempts]
    assert asked[-1].error is None
    made = outcome.revision
    assert (outcome.kind, made.text, made.tags, made.model) == ("made", GOOD.text, ("sea",), "m")
    assert outcome.after.status == "active"
    assert made.input_hash == asked[1].input_hash


def test_a_text_of_the_same_inputs_is_moved_to_its_new_place_and_nothing_is_asked():
    before = replace(revision(), extras={"base": 40}, node_id="L1.7")
    outcome, asked = drive(node(), LookUp=before)
    assert outcome.kind == "reused"
    assert (outcome.revision.node_id, outcome.revision.extras["base"]) == ("L1.0", 0)
    assert Ask not in kinds(asked)


def test_a_text_on_request_is_not_looked_up_and_a_model_that_is_left_alone_is_not_asked():
    """Broken, a new text that was requested is the old one, or a refusing model goes on costing."""
    _, asked = drive(node(status="active", revision=1, dirty=True, forced=True))
    assert next(each for each in asked if isinstance(each, LookUp)).fits is None
    spent = AttemptCount(2, NOW, error="echo")
    outcome, asked = drive(node(), LookUp=spent)
    assert [each.prompts for each in asked if isinstance(each, Ask)] == [0]
    assert (outcome.kind, outcome.after.error) == ("degraded", "echo")


def test_a_store_that_fails_ends_the_decision_and_not_the_attempts():
    with pytest.raises(StoreError):
        drive(node(), model=[StoreError("away")])


@drawn(400, 150)
@given(
    answer=st.sampled_from([GOOD, *ERRORS]),
    stand_in=st.sampled_from([GOOD, UNFIT]),
    counted=st.integers(0, 7),
    before=st.sampled_from([None, "good", "stand-in"]),
    flags=st.fixed_dictionaries({name: st.booleans() for name in ("dirty", "forced")}),
    max_attempts=st.integers(1, 3),
)
def test_p7_whatever_a_model_answers_no_unfit_text_serves_and_no_good_one_is_lost(
    answer, stand_in, counted, before, flags, max_attempts
):
    run = run_of(policy=UpdatePolicy(max_attempts=max_attempts))
    serving = revision(degraded=before == "stand-in")
    same = plan.made_hash(1, serving.strategy, INPUTS)
    serving = replace(serving, input_hash=same)
    state = {"status": "active", "revision": 1, "degraded": serving.degraded} if before else {}
    outcome, asked = drive(
        node(**(state | (flags if before else {}))),
        run,
        NeedRevisions=[serving],
        LookUp=AttemptCount(counted, NOW),
        NoteAttempts=AttemptCount(counted + 2, NOW),
        model=[answer],
        stand_in=stand_in,
    )
    after, made = outcome.after, outcome.revision
    assert made is None or made.text == GOOD.text
    if outcome.kind in ("refused", "moved"):
        assert after is None
    if before == "good" and (flags["dirty"] or flags["forced"]):
        # Its inputs are those that it was made from.
        assert made is None or not made.degraded
    if after is not None and not before:
        assert after.status == ("failed" if made is None else "active")
    if any(isinstance(each, Ask) and each.prompts for each in asked):
        assert NoteAttempts in kinds(asked)
