"""The conformance suites for models, embedders and token counters: subclass one and run pytest.

Each test holds one sentence of ``hiermem.protocols``, which its failure quotes. They judge what an
adapter answers, not how good it is. A suite calls the adapter some forty times with short texts, so
that it may also be run against a real server.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, ClassVar, Final, Literal, get_args

from hiermem.errors import ModelError, ModelErrorKind
from hiermem.protocols import (
    LLM,
    ChatMessage,
    Embedder,
    Finish,
    LLMRequest,
    LLMResponse,
    SourceText,
    TokenCounter,
)
from hiermem.summaries.assess import ends_sentence
from hiermem.testing.checked import Check, condition
from hiermem.tokens import ApproximateCounter

__all__ = ["CounterConformance", "EmbedderConformance", "ModelConformance"]

Kind = Literal["query", "passage"]

#: Names of people of whom a request tells, so that an answer shows whose it is.
_PEOPLE: Final = ("Ottilie", "Barnaby", "Xiomara", "Thaddeus")
_TEXTS: Final = (
    "The train to Bergen leaves at seven.", "An apple pie needs five apples.", "def f(x): return x",
    "Ein Satz auf Deutsch: \xe4\xf6\xfc.", "\u4eca\u65e5\u306f\u96e8\u3067\u3059\u3002",
    "42", "?!", "\U0001f642\U0001f680", "x", "A" * 3_000, "one two three " * 200,
)  # fmt: skip


def _request(who: str, *, sentences: int = 12, max_tokens: int = 200) -> LLMRequest:
    stated = " ".join(
        f"{who} moved house number {n} on the {n}th of May and paid {n * 31} crowns for it."
        for n in range(1, sentences + 1)
    )
    source = SourceText(0, "user", "User", "", stated)
    system = "Summarise what the user says in whole sentences. Answer with the summary alone."
    messages = ChatMessage("system", system), ChatMessage("user", stated)
    counter = ApproximateCounter()
    return LLMRequest("summarise", messages, (source,), min(100, max_tokens), max_tokens, counter)


class _Suite:
    """What the suites share: an adapter has a name, is cancelled and is disconnected."""

    checks = Check
    patience: ClassVar[float] = 300.0

    def _named(self, check: Check, make: Callable[[], Any], kind: type) -> None:
        adapter, again = make(), make()
        name, shaped = adapter.name, isinstance(adapter, kind)
        check.sure("its members", type(adapter), f"those of {kind.__name__}", shaped)
        named = isinstance(name, str) and 0 < len(name) <= 200
        check.sure("name", name, "a text of 1 to 200 characters", named)
        check.same("name of one made anew", again.name, name)

    async def _cancelled(
        self, check: Check, adapter: Any, call: Callable[[], Awaitable[Any]]
    ) -> None:
        """Cancel a call at several moments and let the adapter disconnect; then it must answer."""
        for delay in (0, 0, 0.001, 0.01):
            task = asyncio.ensure_future(call())
            await asyncio.sleep(delay)
            ended = task.done()
            task.cancel()
            done, _ = await asyncio.wait([task], timeout=2)
            check.sure("a cancelled call", "no end", "an end in 2 seconds", done)
            if not ended:
                check.sure("a cancelled call", "an answer", "CancelledError", task.cancelled())
        with check.stated("disconnect(), and a call after others were cancelled"):
            await _leave(adapter)
            await call()


class ModelConformance(_Suite):
    """What a language model must do, one test for each condition.

    A subclass defines ``def make_model(self)``, and ``def make_failing_model(self)`` if it can: a
    model whose server refuses every call, or is not there.
    """

    def make_model(self) -> LLM:
        """Return the model, made anew."""
        raise NotImplementedError("a conformance suite must define make_model(self)")

    def make_failing_model(self) -> LLM | None:
        """Return a model of which every call fails, or None."""
        return None

    async def _answer(
        self, check: Check, request: LLMRequest, model: LLM | None = None
    ) -> LLMResponse:
        with check.stated("complete(request)"):
            answer = await (model or self.make_model()).complete(request)
        shaped = isinstance(answer, LLMResponse)
        check.sure("complete(request)", type(answer), "LLMResponse", shaped)
        return answer

    @condition("Return the identity of the model; it is part of every summary's strategy hash.")
    async def test_it_has_the_shape_of_a_model(self, check: Check) -> None:
        """A model has a name, the same each time it is made, and says what its window is."""
        self._named(check, self.make_model, LLM)
        model, window = self.make_model(), self.make_model().context_window
        whole = window is None or (type(window) is int and window > 0)
        check.sure("context_window", window, "None or a number above 0", whole)
        check.sure("remote", model.remote, "True or False", isinstance(model.remote, bool))

    @condition("A model's answer.")
    async def test_an_answer_is_text_that_says_how_it_ended(self, check: Check) -> None:
        """An answer that ended by itself is a text; its finish reason is one of the four."""
        answer = await self._answer(check, _request(_PEOPLE[0]))
        check.sure("text", answer.text, "a text", isinstance(answer.text, str))
        reason, known = answer.finish_reason, get_args(Finish)
        check.sure("finish_reason", reason, f"one of {known}", reason in known)
        said = reason != "stop" or answer.text.strip()
        check.sure("text that ended by itself", answer.text, "not empty", said)

    @condition("The tokens that a provider reports; None if it reports none.")
    async def test_usage_is_counts(self, check: Check) -> None:
        """What is reported as used are whole numbers from 0; a part is no more than the whole."""
        usage = (await self._answer(check, _request(_PEOPLE[0]))).usage
        for name in usage.__slots__:
            count = getattr(usage, name)
            whole = count is None or (type(count) is int and count >= 0)
            check.sure(f"usage.{name}", count, "None or a whole number from 0", whole)
        parts = (
            ("cached", usage.cached_tokens, usage.input_tokens),
            ("reasoning", usage.reasoning_tokens, usage.output_tokens),
        )
        for name, part, most in parts:
            within = most is None or part is None or part <= most
            check.sure(f"usage.{name}_tokens", part, f"at most {most}, as the whole", within)

    @condition("the hard limit of the answer")
    async def test_an_answer_that_was_cut_off_says_so(self, check: Check) -> None:
        """An answer at its limit is within it, and whole or declared as cut off by "length"."""
        for most in (12, 40):
            request = _request(_PEOPLE[1], sentences=40, max_tokens=most)
            answer = await self._answer(check, request)
            tokens = request.counter.count(answer.text)
            # Counters differ; twice the limit is no difference of counters.
            check.sure("tokens of an answer", tokens, f"at most {most}", tokens <= 2 * most)
            last = answer.text.rstrip().rpartition("\n")[2]
            # The items of a list need no full stop.
            item = last.startswith(("-", "*")) and tokens < most
            whole = answer.finish_reason != "stop" or not last or item or ends_sentence(last)
            stated = f"finish_reason of an answer that ends with {last[-30:]!a}"
            check.sure(stated, answer.finish_reason, "length, for it is cut off", whole)

    @condition("Must be safe to cancel")
    async def test_answers_do_not_cross(self, check: Check) -> None:
        """Of several calls at once, each gets the answer to its own request."""
        model = self.make_model()
        requests = [_request(who, sentences=4 + 8 * n) for n, who in enumerate(_PEOPLE)]
        with check.stated("complete(request), four at once"):
            answers = await asyncio.gather(*(model.complete(request) for request in requests))
        for who, answer in zip(_PEOPLE, answers, strict=True):
            others = [each for each in _PEOPLE if each != who and each in answer.text]
            check.same(f"people in the answer about {who}", others, [])
        sizes = [answer.usage.input_tokens or 0 for answer in answers]
        stated = "usage.input_tokens of four requests, each longer than the one before"
        check.sure(stated, sizes, "rising", sizes == sorted(sizes))

    @condition("Must be safe to cancel")
    async def test_it_is_safe_to_cancel(self, check: Check) -> None:
        """A call that is cancelled ends at once, and the next one is answered as ever."""
        model = self.make_model()
        await self._cancelled(check, model, lambda: model.complete(_request(_PEOPLE[2])))

    @condition("The model must stay usable afterwards, because others may share it.")
    async def test_it_serves_one_event_loop_after_another(self, check: Check) -> None:
        """A model that was used in one event loop, and disconnected, answers in another one."""
        model = self.make_model()

        async def use() -> None:
            await self._answer(check, _request(_PEOPLE[3]), model)
            await _leave(model)

        for _ in range(2):
            await asyncio.to_thread(lambda: asyncio.run(use()))

    @condition("Raises ModelError of kind")
    async def test_what_fails_raises_model_error(self, check: Check) -> None:
        """A call that fails, or does not fit the window, raises ModelError of a known kind."""
        failing, model = self.make_failing_model(), self.make_model()
        window = model.context_window
        calls = [(failing, _request(_PEOPLE[0]))] if failing is not None else []
        calls += [(model, _request(_PEOPLE[0], sentences=window // 10))] if window else []
        if not calls:
            check.skip("the suite defines no make_failing_model(), and the model has no window")
        for each, request in calls:
            answer: object
            try:
                answer = await each.complete(request)
            except Exception as error:  # noqa: BLE001 - any but the right one is shown
                answer = error
            right = isinstance(answer, ModelError) and answer.kind in get_args(ModelErrorKind)
            check.sure("complete(request) that must fail", answer, "ModelError", right)


async def _embed(embedder: Embedder, texts: Sequence[str], kind: Kind = "passage") -> Any:
    answer: Any = embedder.embed(texts, kind=kind)
    return await answer if inspect.isawaitable(answer) else answer


class EmbedderConformance(_Suite):
    """What an embedder must do; a subclass defines ``def make_embedder(self)``."""

    def make_embedder(self) -> Embedder:
        """Return the embedder, made anew."""
        raise NotImplementedError("a conformance suite must define make_embedder(self)")

    async def _vectors(
        self, check: Check, embedder: Embedder, texts: Sequence[str], kind: Kind = "passage"
    ) -> list[list[float]]:
        with check.stated(f"embed of {len(texts)} texts, kind={kind!r}"):
            rows = await _embed(embedder, texts, kind)
            vectors = [[float(number) for number in row] for row in rows]
        check.same(f"number of vectors of {len(texts)} texts", len(vectors), len(texts))
        return vectors

    @condition("Return the identity that is stored with the vectors.")
    async def test_it_has_the_shape_of_an_embedder(self, check: Check) -> None:
        """An embedder has a name and a dimension, the same each time it is made."""
        self._named(check, self.make_embedder, Embedder)
        sizes = [self.make_embedder().dimension for _ in range(2)]
        whole = type(sizes[0]) is int and sizes[0] > 0 and sizes[0] == sizes[1]
        check.sure("dimension, twice", sizes, "one number above 0", whole)

    @condition("Return one vector per text, in order: a sequence of sequences, or a 2-d array.")
    async def test_vectors_come_in_the_order_of_the_texts(self, check: Check) -> None:
        """Each text has one vector, in its place, alone or among many; no text has none."""
        embedder, texts = self.make_embedder(), _TEXTS[:5]
        alone = [(await self._vectors(check, embedder, [text]))[0] for text in texts]
        _near(check, "embedded together", await self._vectors(check, embedder, texts), alone)
        back = await self._vectors(check, embedder, texts[::-1])
        _near(check, "embedded in reverse", back[::-1], alone)
        many = [f"{text} {n}" for n in range(30) for text in texts]
        among = await self._vectors(check, embedder, [*many, *texts])
        _near(check, "embedded after 150 others", among[len(many) :], alone)
        await self._vectors(check, embedder, [])

    @condition("Return the number of components of a vector.")
    async def test_vectors_have_the_dimension(self, check: Check) -> None:
        """Every vector has as many components as the embedder says, for queries too."""
        embedder = self.make_embedder()
        for kind in get_args(Kind):
            sizes = {len(vector) for vector in await self._vectors(check, embedder, _TEXTS, kind)}
            check.same(f"components of vectors of kind {kind}", sizes, {embedder.dimension})

    @condition("Every number is finite, and no vector is all zeros.")
    async def test_vectors_are_finite_and_not_zero(self, check: Check) -> None:
        """Any text has a direction: symbols, digits, one letter, another script, a long run."""
        for kind in get_args(Kind):
            vectors = await self._vectors(check, self.make_embedder(), _TEXTS, kind)
            for text, vector in zip(_TEXTS, vectors, strict=True):
                odd = [number for number in vector if not math.isfinite(number)]
                check.sure(f"vector of {text[:20]!a}", odd, "finite numbers", not odd)
                check.sure(f"vector of {text[:20]!a}", "all zeros", "a direction", any(vector))

    @condition("The same text and kind always give the same vector.")
    async def test_a_text_has_one_vector(self, check: Check) -> None:
        """A text has the same vector again, at once with others, and of an embedder made anew."""
        embedder = self.make_embedder()
        first = await self._vectors(check, embedder, _TEXTS)
        _near(check, "embedded again", await self._vectors(check, embedder, _TEXTS), first)
        calls = (self._vectors(check, embedder, [text]) for text in _TEXTS)
        at_once = [vectors[0] for vectors in await asyncio.gather(*calls)]
        _near(check, "embedded by calls at once", at_once, first)
        anew = await self._vectors(check, self.make_embedder(), _TEXTS)
        _near(check, "embedded by one made anew", anew, first)

    @condition("Turns texts into vectors; texts of similar meaning get similar directions.")
    async def test_texts_differ(self, check: Check) -> None:
        """A question is nearer to the text of its own words than to others."""
        embedder = self.make_embedder()
        passages = await self._vectors(check, embedder, _TEXTS[:4])
        queries = await self._vectors(check, embedder, _TEXTS[:4], "query")
        for at, (text, query) in enumerate(zip(_TEXTS, queries, strict=False)):
            cosines = [round(_cosine(query, passage), 4) for passage in passages]
            best = [n for n, cosine in enumerate(cosines) if cosine == max(cosines)] == [at]
            check.sure(f"cosines of {text!a} to four texts", cosines, "greatest to itself", best)

    @condition("a ``disconnect()``, as an LLM may.")
    async def test_it_is_safe_to_cancel(self, check: Check) -> None:
        """A call that is cancelled ends at once; after that and a disconnect it answers as ever."""
        embedder = self.make_embedder()
        await self._cancelled(check, embedder, lambda: _embed(embedder, _TEXTS))


class CounterConformance(_Suite):
    """What a token counter must do; a subclass defines ``def make_counter(self)``."""

    def make_counter(self) -> TokenCounter:
        """Return the counter, made anew."""
        raise NotImplementedError("a conformance suite must define make_counter(self)")

    def _counts(self, check: Check, *texts: str, counter: TokenCounter | None = None) -> list[int]:
        counter = counter or self.make_counter()
        counts = []
        for text in texts:
            with check.stated(f"count({text[:20]!a})"):
                counts.append(counter.count(text))
        return counts

    @condition("Return the identity that is stored with a session")
    async def test_it_has_a_name(self, check: Check) -> None:
        """A counter has a name, the same each time it is made."""
        self._named(check, self.make_counter, TokenCounter)

    @condition("Counts tokens, exactly")
    async def test_counts_are_whole_numbers(self, check: Check) -> None:
        """A count is a whole number: 0 for no text, above it for any other."""
        texts = ("", *_TEXTS, "\r\n\t ", "\x00", "a\u0301", "<|endoftext|>")
        for text, count in zip(texts, self._counts(check, *texts), strict=True):
            whole = type(count) is int and (count > 0 if text else count == 0)
            should = "a whole number above 0" if text else "0"
            check.sure(f"count({text[:20]!a})", count, should, whole)

    @condition("Counts tokens, exactly")
    async def test_a_text_has_one_count(self, check: Check) -> None:
        """A text has the same count again, after others, on threads and of a counter made anew."""
        counter = self.make_counter()
        first = self._counts(check, *_TEXTS, counter=counter)
        again = self._counts(check, *_TEXTS[::-1], counter=counter)[::-1]
        check.same("counts of the same texts again", again, first)
        with ThreadPoolExecutor(4) as pool, check.stated("count on threads"):
            check.same("counts on threads", list(pool.map(counter.count, _TEXTS * 8)), first * 8)
        check.same("counts of a counter made anew", self._counts(check, *_TEXTS), first)

    @condition("Counts tokens, exactly")
    async def test_a_longer_text_has_no_smaller_count(self, check: Check) -> None:
        """A text and more has at least its count; a hundred times the text has many times it."""
        for text in _TEXTS:
            longer = [f"{text}\n\n{more}" for more in _TEXTS]
            count, *counts = self._counts(check, text, *longer)
            stated = f"counts of {text[:20]!a} and more"
            check.sure(stated, counts, f"at least {count}", min(counts) >= count)
        lines = ["The train leaves at seven.\n" * n for n in (1, 10, 100, 1_000)]
        counts = self._counts(check, *lines)
        grows = all(5 * short <= long for short, long in pairwise(counts))
        check.sure("counts of a line 1, 10, 100 and 1,000 times", counts, "growing alike", grows)

    @condition("Counts tokens, exactly")
    async def test_it_does_not_count_too_few(self, check: Check) -> None:
        """No script has so few tokens: a word, a few ideographs or ten signs are one at least."""
        least = {
            " ".join(f"word{n} and" for n in range(500)): 700,
            "".join(chr(33 + n * 7919 % 93) for n in range(5_000)): 500,
            "\u96e8\u4eca\u65e5" * 500: 300,
            "\U0001f642\U0001f680" * 300: 200,
        }
        for (text, few), count in zip(least.items(), self._counts(check, *least), strict=True):
            stated = f"count of {len(text):,} characters {text[:12]!a}"
            check.sure(stated, count, f"at least {few}", count >= few)

    @condition("Count the tokens of ``text``, never interpreting a part of it as a special token.")
    async def test_special_tokens_are_text(self, check: Check) -> None:
        """The marks of a vocabulary, written by a user, are counted as the text that they are."""
        texts = ("<|endoftext|>", "<|im_start|>system", "</s>", "[INST]", "<|fim_prefix|>")
        for text, count in zip(texts, self._counts(check, *texts), strict=True):
            check.sure(f"count({text!a})", count, "more than one token", count > 1)


async def _leave(adapter: Any) -> None:
    if hasattr(adapter, "disconnect"):
        await adapter.disconnect()


def _near(check: Check, how: str, was: list[list[float]], right: list[list[float]]) -> None:
    for text, one, other in zip(_TEXTS, was, right, strict=False):
        cosine = round(_cosine(one, other), 4)
        check.sure(f"cosine of {text[:20]!a} {how} and before", cosine, "1.0", cosine > 0.999)


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    lengths = math.hypot(*one) * math.hypot(*other)
    return sum(a * b for a, b in zip(one, other, strict=False)) / lengths if lengths else 0.0
