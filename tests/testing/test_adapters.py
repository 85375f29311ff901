"""The suites for models, embedders and counters: the shipped pass, each wrong one is rejected."""

import asyncio
import itertools
import math
import threading
from dataclasses import replace

import pytest

from hiermem.embedders.hashing import HashingEmbedder
from hiermem.errors import ModelError
from hiermem.models.function import FunctionLLM
from hiermem.models.offline.model import ExtractiveLLM
from hiermem.protocols import LLMResponse, Usage
from hiermem.testing import FaultyLLM, ScriptedLLM
from hiermem.testing.adapters import CounterConformance, EmbedderConformance, ModelConformance
from hiermem.tokens import ApproximateCounter, FunctionCounter, TiktokenCounter


class TestOfflineModel(ModelConformance):
    def make_model(self):
        return ExtractiveLLM()


class TestScriptedModel(ModelConformance):
    def make_model(self):
        return ScriptedLLM(latency=0.02, context_window=2_000)

    def make_failing_model(self):
        return FaultyLLM(faults=("rate_limit",), rate=1.0)


class TestFunctionModel(ModelConformance):
    def make_model(self):
        return FunctionLLM(lambda request: f"{request.inputs[0].text.split('.')[0]}.", name="first")

    def make_failing_model(self):
        def refuse(request):
            raise ModelError("401")

        return FunctionLLM(refuse)


class TestHashingEmbedder(EmbedderConformance):
    def make_embedder(self):
        return HashingEmbedder()


class TestTiktokenCounter(CounterConformance):
    def make_counter(self):
        return TiktokenCounter()


class TestApproximateCounter(CounterConformance):
    def make_counter(self):
        return ApproximateCounter()


class TestFunctionCounter(CounterConformance):
    def make_counter(self):
        return FunctionCounter(lambda text: math.ceil(len(text.encode()) / 3), name="thirds")


#: What is wrong, the condition that rejects it, and what its failure says.
WRONG = []


def wrong(condition, *words):
    def registered(adapter):
        WRONG.append((adapter, f"test_{condition}", words))
        return adapter

    return registered


class Model(ScriptedLLM):
    """The scripted model, with a place for faults of its answers."""

    def __init__(self):
        super().__init__(latency=0.02, context_window=2_000)

    def faulty(self, request, answer):
        return answer

    async def complete(self, request):
        return self.faulty(request, await super().complete(request))


class Embedder(HashingEmbedder):
    """The embedder, with a place for faults of its list of vectors."""

    async def embed(self, texts, *, kind="passage"):
        return self.faulty([list(map(float, row)) for row in await super().embed(texts, kind=kind)])

    def faulty(self, rows):
        return rows


class Counter(ApproximateCounter):
    """The counter, with a place for faults of a count."""

    def count(self, text):
        return self.faulty(text, super().count(text))

    def faulty(self, text, count):
        return count


def _all_not_empty(rows):
    min(rows)
    return rows


#: What is wrong with one function: the condition that rejects it, the words, and the function.
FAULTS = {
    Model: [
        ("an_answer_that_was_cut_off_says_so", ("length, for it is cut off",),
         lambda _, request, answer: LLMResponse(
             " ".join(request.inputs[0].text.split()[: request.max_tokens // 2]))),
        ("an_answer_that_was_cut_off_says_so", ("should be  at most 12",),
         lambda _, request, answer: LLMResponse(request.inputs[0].text)),
        ("usage_is_counts", ("usage.output_tokens", "was there  -1"),
         lambda _, request, answer: replace(answer, usage=Usage(5, -1))),
        ("usage_is_counts", ("usage.input_tokens", "was there  2.5"),
         lambda _, request, answer: replace(answer, usage=Usage(2.5, 1))),
        ("usage_is_counts", ("usage.cached_tokens", "at most 5"),
         lambda _, request, answer: replace(answer, usage=Usage(5, 1, cached_tokens=9))),
        ("an_answer_is_text_that_says_how_it_ended", ("was there  'end_turn'",),
         lambda _, request, answer: replace(answer, finish_reason="end_turn")),
        ("an_answer_is_text_that_says_how_it_ended", ("not empty",),
         lambda _, request, answer: LLMResponse("\n")),
        ("an_answer_is_text_that_says_how_it_ended", ("<class 'str'>", "should be  LLMResponse"),
         lambda _, request, answer: answer.text),
    ],
    Embedder: [
        ("vectors_come_in_the_order_of_the_texts", ("embedded together", "1.0"),
         lambda _, rows: rows[::-1]),
        ("vectors_come_in_the_order_of_the_texts", ("of 155 texts", "was there  100"),
         lambda _, rows: rows[:100]),
        ("vectors_come_in_the_order_of_the_texts", ("embed of 0 texts", "ValueError"),
         lambda _, rows: _all_not_empty(rows)),
        ("vectors_have_the_dimension", ("{513}", "{512}"),
         lambda _, rows: [[*row, 0.0] for row in rows]),
        ("vectors_are_finite_and_not_zero", ("[nan]", "finite numbers"),
         lambda _, rows: [[*row[:-1], math.nan] for row in rows]),
        ("texts_differ", ("cosines of", "greatest to itself"),
         lambda _, rows: [[1.0] * 512 for _ in rows]),
    ],
    Counter: [
        ("counts_are_whole_numbers", ("was there  0.0",), lambda _, text, count: len(text) / 4),
        ("counts_are_whole_numbers", ("was there  0", "a whole number above 0"),
         lambda _, text, count: count if text.strip() else 0),
        ("counts_are_whole_numbers", ("was there  -",), lambda _, text, count: -count),
        ("counts_are_whole_numbers", ("count('')", "was there  2", "should be  0"),
         lambda _, text, count: count + 2),
        ("a_longer_text_has_no_smaller_count", ("growing alike",),
         lambda _, text, count: min(count, 512)),
        ("a_longer_text_has_no_smaller_count", ("and more", "at least"),
         lambda _, text, count: count if len(text) < 3_000 else 1),
        ("it_does_not_count_too_few", ("at least",),
         lambda _, text, count: max(len(text.split()), 1) if text else 0),
        ("special_tokens_are_text", ("<|endoftext|>", "more than one token"),
         lambda _, text, count: 1 if text == "<|endoftext|>" else count),
    ],
}  # fmt: skip
WRONG += [
    (type(f"{kind.__name__}_{n}", (kind,), {"faulty": fault}), f"test_{condition}", words)
    for kind, faults in FAULTS.items()
    for n, (condition, words, fault) in enumerate(faults)
]


@wrong("what_fails_raises_model_error", "ValueError", "should be  ModelError")
class RaisesItsOwn(Model):
    async def complete(self, request):
        try:
            return await super().complete(request)
        except ModelError as error:
            raise ValueError("400 Bad Request") from error


@wrong("what_fails_raises_model_error", "LLMResponse", "should be  ModelError")
class AnswersTheError(Model):
    async def complete(self, request):
        try:
            return await super().complete(request)
        except ModelError:
            return LLMResponse("Error: the request is too long.")


@wrong("it_is_safe_to_cancel", "after others were cancelled", "should be  no error")
class StaysBusy(Model):
    busy = False

    async def complete(self, request):
        if self.busy:
            raise ModelError("busy", kind="transient")
        self.busy = True
        answer = await super().complete(request)
        self.busy = False
        return answer


@wrong("it_is_safe_to_cancel", "an answer", "CancelledError")
class SwallowsCancellation(Model):
    async def complete(self, request):
        try:
            return await super().complete(request)
        except asyncio.CancelledError:
            return await super().complete(request)


@wrong("it_is_safe_to_cancel", "a cancelled call", "an end in 2 seconds")
class NeverEnds(Model):
    async def complete(self, request):
        try:
            return await super().complete(request)
        except asyncio.CancelledError:
            await asyncio.sleep(30)
            raise


@wrong("answers_do_not_cross", "four at once", "RuntimeError")
class OneCallAtATime(Model):
    async def complete(self, request):
        if self.in_flight:
            raise RuntimeError("the session is in use")
        return await super().complete(request)


@wrong("answers_do_not_cross", "people in the answer about Ottilie", "Thaddeus")
class AnswersTheLastRequest(Model):
    async def complete(self, request):
        self.request = request
        await asyncio.sleep(0)
        return await super().complete(self.request)


@wrong("it_serves_one_event_loop_after_another", "RuntimeError")
class KeepsItsLoop(Model):
    lock = None

    async def complete(self, request):
        loop = self.lock = self.lock or asyncio.get_running_loop()
        if loop is not asyncio.get_running_loop():
            raise RuntimeError("bound to a different event loop")
        return await super().complete(request)


@wrong("it_has_the_shape_of_a_model", "name of one made anew")
class AnotherNameEachTime(Model):
    def __init__(self):
        super().__init__()
        self.name = f"model-{id(self)}"


@wrong("it_has_the_shape_of_a_model", "context_window", "None or a number above 0")
class NoWindowAtAll(Model):
    def __init__(self):
        super().__init__()
        self.context_window = 0


@wrong("vectors_are_finite_and_not_zero", "all zeros", "'?!'")
class ZeroForSymbols(Embedder):
    async def embed(self, texts, *, kind="passage"):
        rows = await super().embed(texts, kind=kind)
        letters = [any(map(str.isalnum, text)) for text in texts]
        return [row if some else [0.0] * 512 for row, some in zip(rows, letters, strict=True)]


@wrong("a_text_has_one_vector", "embedded again", "1.0")
class AnotherVectorEachTime(Embedder):
    calls = 0

    def faulty(self, rows):
        self.calls += 1
        return [[*row[self.calls :], *row[: self.calls]] for row in rows]


@wrong("a_text_has_one_vector", "embedded by one made anew", "1.0")
class AnotherVectorEachLife(Embedder):
    lives = itertools.count()

    def __init__(self):
        super().__init__()
        self.life = next(self.lives)

    def faulty(self, rows):
        return [[*row[self.life :], *row[: self.life]] for row in rows]


@wrong("it_is_safe_to_cancel", "after others were cancelled")
class EmbedderStaysBusy(Embedder):
    busy = False

    async def embed(self, texts, *, kind="passage"):
        if self.busy:
            raise RuntimeError("busy")
        self.busy = True
        await asyncio.sleep(0.02)
        self.busy = False
        return await super().embed(texts, kind=kind)


@wrong("it_has_the_shape_of_an_embedder", "dimension", "[None, None]")
class DimensionUnknown(Embedder):
    def __init__(self):
        super().__init__()
        self.dimension = None


@wrong("a_text_has_one_count", "counts of the same texts again")
class CountsChange(Counter):
    calls = 0

    def count(self, text):
        self.calls += bool(text)
        return super().count(text) + self.calls * bool(text)


@wrong("a_text_has_one_count", "counts of a counter made anew")
class CountsOfALife(Counter):
    lives = itertools.count()

    def __init__(self):
        self.life = next(self.lives)

    def count(self, text):
        return super().count(text) + self.life


@wrong("a_text_has_one_count", "count on threads", "RuntimeError")
class OfOneThread(Counter):
    def __init__(self):
        self.thread = threading.get_ident()

    def count(self, text):
        if threading.get_ident() != self.thread:
            raise RuntimeError("Already borrowed")
        return super().count(text)


@wrong("special_tokens_are_text", "ValueError", "no error")
class RefusesSpecialTokens(Counter):
    def count(self, text):
        if "<|im_start|>" in text:
            raise ValueError("Encountered text corresponding to disallowed special token")
        return super().count(text)


@wrong("it_has_a_name", "was there  ''", "a text")
class NoName(Counter):
    name = ""


def suite_of(adapter):
    for kind, suite, make in (
        (Model, ModelConformance, "make_model"),
        (Embedder, EmbedderConformance, "make_embedder"),
        (Counter, CounterConformance, "make_counter"),
    ):
        if issubclass(adapter, kind):
            return type("Suite", (suite,), {make: lambda self: adapter()})()
    raise AssertionError(adapter)


@pytest.mark.parametrize(
    ("adapter", "condition", "words"), WRONG, ids=[each[0].__name__ for each in WRONG]
)
def test_a_wrong_adapter_is_rejected_in_one_screen(adapter, condition, words, tmp_path):
    with pytest.raises(pytest.fail.Exception) as rejected:
        getattr(suite_of(adapter), condition)(tmp_path)
    text = str(rejected.value)
    for word in (condition, *words, "rule", "operation", "was there", "should be"):
        assert word in text, text
    assert len(text.splitlines()) <= 24
    assert not rejected.value.pytrace


SUITES = (ModelConformance, EmbedderConformance, CounterConformance)


def test_each_condition_rejects_some_wrong_adapter():
    for suite, kind in zip(SUITES, (Model, Embedder, Counter), strict=True):
        conditions = {name for name in dir(suite) if name.startswith("test_")}
        assert conditions == {name for each, name, _ in WRONG if issubclass(each, kind)}


class Plain:
    """An embedder whose ``embed`` is a plain function, as a memory takes it too."""

    name, dimension = "plain", 26

    def embed(self, texts, *, kind):
        return [
            [1.0 + text.lower().count(chr(letter)) for letter in range(97, 123)] for text in texts
        ]


def test_an_embedder_may_be_a_plain_function(tmp_path):
    """Broken, the suite refuses what a memory accepts."""
    suite = type("Suite", (EmbedderConformance,), {"make_embedder": lambda self: Plain()})()
    for condition in (name for name in dir(suite) if name.startswith("test_")):
        getattr(suite, condition)(tmp_path)
