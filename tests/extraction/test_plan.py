"""What an extraction decides: its limit, what to ask for, what a failure means, how it ends."""

from datetime import UTC, datetime

import pytest

from hiermem.calls import limits
from hiermem.calls.claim import write_claim
from hiermem.config import ExtractionOptions
from hiermem.errors import ConfigError
from hiermem.extraction import plan
from hiermem.extraction.chunks import Measured, turns
from hiermem.extraction.chunks import plan as parted
from hiermem.extraction.plan import StoredAnswer, made_from, read_answer, write_answer
from hiermem.prompts import load_named
from hiermem.types.trivector import Answer

NOW = datetime(2024, 3, 15, tzinfo=UTC)


def chunks(*sizes, limit=100):
    measured = [Measured(n, "main", "user", size, f"h{n}") for n, size in enumerate(sizes)]
    return parted("s", turns(measured), limit=limit, strategy="x")


def test_the_limit_is_what_was_asked_for_or_a_share_of_the_window():
    asked = ExtractionOptions(safe_processing_tokens=7)
    assert [limits.threshold(asked, window) for window in (None, 7)] == [7, 7]
    assert [limits.threshold(ExtractionOptions(), window) for window in (1001, None)] == [750, None]
    for window in (0, -1, 1.5, True, "8k", float("nan")):
        with pytest.raises(ConfigError):
            limits.threshold(ExtractionOptions(), window)
    with pytest.raises(ConfigError, match="750"):
        limits.threshold(ExtractionOptions(safe_processing_tokens=1001), 1000)


@pytest.mark.parametrize(
    ("limit", "window", "live", "wanted"),
    [
        (None, None, True, limits.REMOTE_ANSWER), (None, None, False, limits.LOCAL_ANSWER),
        (None, 8_000, True, 2_000), (6_144, None, False, 2_048), (6_144, 32_768, False, 2_048),
        (6_144, 8_192, True, 2_048), (100_000, None, False, limits.LOCAL_ANSWER),
        (100, None, True, 256),
    ],
)  # fmt: skip
def test_an_answer_has_a_quarter_of_the_window_in_force_at_most(limit, window, live, wanted):
    """Broken if a small limit left no room for a record."""
    options = ExtractionOptions(safe_processing_tokens=limit)
    assert limits.answer_tokens(options, window=window, live=live) == wanted
    given = ExtractionOptions(output_tokens=900, safe_processing_tokens=limit)
    assert limits.answer_tokens(given, window=window, live=live) == 900


def test_all_that_decides_an_answer_is_in_the_strategy():
    """Another model, prompt, temperature or answer length is asked again; the limit is no part."""
    template = load_named("extract.map")

    def of(template=template, *, answer=1000, model="m", counter="c", **options):
        return plan.strategy_of(
            template, ExtractionOptions(**options), answer=answer, model=model, counter=counter
        )

    same = of()
    assert same == of(safe_processing_tokens=9, on_chunk_failure="partial")
    others = [of(load_named("extract.reduce")), of(answer=2), of(model="n"), of(counter="d"),
              of(temperature=0.5)]  # fmt: skip
    assert len({same, *others}) == 6


def test_what_is_kept_comes_back_and_what_is_damaged_is_none():
    kept = StoredAnswer(Answer(summary="x").model_dump_json(), "s", "m", 4, ((0, 3), (5, 6)))
    assert read_answer(write_answer(kept)) == kept
    assert kept.value() == Answer(summary="x")
    for body in ("", "[]", "3", "{}", '{"answer": 1}', '{"run": "r", "until": "soon"}', "[" * 9999,
                 '{"answer":"x","strategy":"s","model":"m","dropped":"many"}'):  # fmt: skip
        assert read_answer(body) is None
    assert StoredAnswer('{"summary": 1}', "s", "m").value() is None


def test_an_answer_goes_with_each_message_that_it_was_made_from_and_with_no_other():
    """Broken, an erased message lives on in an answer, or an erasure costs the whole session."""
    body = write_answer(StoredAnswer("{}", "s", "m", spans=((0, 3), (5, 6))))
    assert [index for index in range(8) if made_from(body, {index})] == [0, 1, 2, 5]
    assert made_from(body, {4, 5})
    assert not made_from(body, {3, 4, 6})
    for unknown in (
        write_answer(StoredAnswer("{}", "s", "m")),
        write_claim("run", NOW),
        "",
        "{}",
    ):
        assert made_from(unknown, {7})
