"""The guide's table of answers: each row is tried on the record above it."""

import re
from pathlib import Path

import pytest

from hiermem.protocols import ChatMessage, LLMRequest, LLMResponse, SourceText
from hiermem.summaries.assess import Standard, anchor_limit, assess_written, source_of
from hiermem.tokens import default_counter

GUIDE = (Path(__file__).parents[2] / "docs" / "guide.md").read_text("utf-8")
SECTION = GUIDE.partition("### Rejected answers")[2].partition("\n### ")[0]
RECORD = re.search(r"```text\n(.*?)```", SECTION, re.DOTALL)[1].splitlines()
ROW = re.compile(r"^\| (`+) ?(.*?) ?\1 \| (accepted|repaired|refused) \| (.*?) ?\|$", re.MULTILINE)
ROWS = [(match[2].replace("\\n", "\n"), match[3], match[4]) for match in ROW.finditer(SECTION)]
COUNTER = default_counter()


def request() -> LLMRequest:
    sources = tuple(
        SourceText(number, "user", speaker, RECORD[0].strip("[]"), text)
        for number, line in enumerate(RECORD[1:])
        for speaker, _, text in [line.partition(": ")]
    )
    return LLMRequest(
        task="summarise",
        messages=(ChatMessage("system", "Summarise."), ChatMessage("user", "The record.")),
        inputs=sources,
        target_tokens=70,
        max_tokens=150,
        counter=COUNTER,
    )


def test_every_row_of_the_table_is_read():
    assert len(ROWS) == SECTION.count("\n| `") >= 18
    assert {outcome for _, outcome, _ in ROWS} == {"accepted", "repaired", "refused"}


@pytest.mark.parametrize(("answer", "outcome"), [row[:2] for row in ROWS])
def test_a_row_of_the_table_says_what_happens(answer, outcome):
    """Broken if the guide promises another end for this answer than it has."""
    asked = request()
    standard = Standard(
        source_of(asked, limit=anchor_limit(asked.target_tokens)),
        input_tokens=sum(COUNTER.count(source.text) + 4 for source in asked.inputs),
    )
    draft = assess_written(asked, standard, LLMResponse(answer))
    assert draft.fit == (outcome != "refused"), draft.problems
    assert (draft.text != answer) == (outcome == "repaired")
