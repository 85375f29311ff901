"""Checks of form and repair hold for any text: they end, take linear time and keep good texts."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from linear import is_linear, repeated
from sampling import params

from hiermem.protocols import LLMRequest, LLMResponse, SourceText
from hiermem.summaries.assess import repair, unwrapped
from hiermem.summaries.checks import ALWAYS, WRITTEN, Answer
from hiermem.tokens import FunctionCounter

COUNTER = FunctionCounter(lambda text: (len(text) + 3) // 4, name="quarter")


def request(text: str = "Ann rents a flat in Porto.", *, target: int = 50) -> LLMRequest:
    return LLMRequest(
        task="summarise",
        messages=(),
        inputs=(SourceText(0, "user", "Ann", "2024-03-15", text),),
        target_tokens=target,
        max_tokens=10**9,
        counter=COUNTER,
    )


TEXTS = st.lists(
    st.sampled_from(
        ["## Overview\n", "- Ann rents a flat.\n", "Here is the summary:\n", "```md\n", "```",
         "\n\n", "Let me know!", "<summary>", "</summary>", "{", '"a": ', "}", "Ann (user): ",
         "the ", "x. "]
    ),
    max_size=14,
).map("".join)  # fmt: skip


@given(TEXTS)
def test_a_repaired_answer_is_a_part_of_the_answer(text):
    """Broken if a repair would add anything, or change a line."""
    for finish in ("stop", "length"):
        found = repair(LLMResponse(text, finish_reason=finish), request=request())
        assert found.text in text
        assert found.finish_reason in (finish, "stop", "length")


@given(TEXTS)
def test_unwrapping_twice_takes_nothing_more_from_what_is_left_of_a_plain_text(text):
    plain = "## Overview\n- " + " ".join(text.replace("`", "").replace("<", "").split()) + "."
    assert unwrapped(plain) == plain


def test_an_answer_with_a_schema_or_with_units_is_left_alone():
    text = '```\n{"a": 1}\n```'
    bare = request()
    asked = LLMRequest(
        **{name: getattr(bare, name) for name in LLMRequest.__slots__} | {"schema": {"a": 1}}
    )
    assert repair(LLMResponse(text), request=asked).text == text


@pytest.mark.parametrize(
    "family",
    params(["a", "{", '{"a":', "[", "```", "```\n", "Ann: I ", "Ann (user): x\n", "I can ", "you ",
     "!", "\n",
     "- x\n", "the ", "x. ", "我", "ignore a b c ", "Here is ", "<think>", "def ", "x(", '"'], 8),
)  # fmt: skip
def test_time_grows_linearly_with_hostile_text(family):
    def work(text: str) -> None:
        asked = request(text)
        for check in (*ALWAYS, *WRITTEN):
            check.applies(Answer(LLMResponse(text), asked, 10, 9, record=(text,)))
        repair(LLMResponse(text, finish_reason="length"), request=asked)
        repair(LLMResponse(text), request=asked)

    assert is_linear(lambda size: repeated(family, size), work, size=10_000)


def applies(name, answer, *, asked):
    """Return whether the check of this name applies to an answer."""
    judged = Answer(LLMResponse(answer), asked, 10, 9)
    return any(check.applies(judged) for check in WRITTEN if check.name == name)


SAID = (
    "I rent a flat in Porto now.",
    "How much is it? I would love to see it!",
    "It costs me 900 euros a month.",
    "You must come to my house warming.",
)


def of_two(*texts):
    """Return a request about what Ann and Bob said in turn."""
    inputs = [
        SourceText(at, "user", ("Ann", "Bob")[at % 2], "2024-03-15", text)
        for at, text in enumerate(texts)
    ]
    return replace(request(), inputs=tuple(inputs))


@pytest.mark.parametrize("first", ["", "[2024-03-15]\n", "**"])
def test_a_transcript_of_the_record_is_no_summary(first):
    """The record as a prompt shows it names no roles, so a continued one has none either."""
    asked = of_two(*SAID)
    lines = [f"{first}{source.speaker}: {source.text}" for source in asked.inputs]
    assert applies("continuation", "\n".join(lines), asked=asked)


@pytest.mark.parametrize(
    "answer",
    [
        "Ann: rents a flat in Porto for 900 euros.\nBob: comes to the house warming.",
        "## Overview\n- Ann: I rent a flat in Porto now.\n- Bob: How much is it?\n- 900 euros.",
        'Ann rents a flat in Porto.\nBob: "I would love to see it!"\nIt costs 900 euros.',
    ],
)
def test_a_summary_that_names_or_quotes_its_speakers_is_fit(answer):
    assert not applies("continuation", answer, asked=of_two(*SAID))


def test_a_list_of_like_lines_is_no_repetition():
    """Broken, a list of prices is refused as the same again and again."""
    prices = "".join(f"- bolt M{n}: 37.{n} EUR\n" for n in range(10, 60))
    assert not applies("repetitive", prices, asked=request(prices))
    assert not applies(
        "repetitive", "".join(f"- {n}: 37.{n}\n" for n in range(20)), asked=request()
    )
    assert applies("repetitive", "- Ann rents a flat.\n" * 4, asked=request())
    assert applies("repetitive", "Ann really, really rents " * 20, asked=request())
