"""Excerpts: what a few hundred tokens show of a text that is far longer."""

import re
from itertools import islice, pairwise, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiermem.text import units
from hiermem.text.slices import GAP, excerpt
from hiermem.tokens import TiktokenCounter

count = TiktokenCounter().count
count("loads the vocabulary, so that no drawn example is charged for it")

SUFFIX = re.compile(r" \[x\d+\]$")
lines = st.sampled_from(
    [
        "ok 1", "ok 22", "", "  indented", "```py", "=====", "E   AssertionError: 3 != 4",
        "漢字。漢字",
    ]
) | st.text(max_size=300)  # fmt: skip
texts = st.lists(lines, max_size=80).map("\n".join)


def shown(text):
    return [SUFFIX.sub("", line) for line in text.splitlines() if line != GAP]


@given(text=texts, limit=st.integers(1, 400), filled=st.booleans())
def test_an_excerpt_fits_and_says_nothing_that_the_text_does_not(text, limit, filled):
    """Broken, a summary is made from words that nobody said, or a request is over its limit."""
    found = excerpt(text, limit, count, filled=filled)
    if count(text) <= limit:
        assert found == text
        return
    assert excerpt(text, limit, count, filled=filled) == found
    assert count(found) <= max(limit, 12)
    # Lines are shown in the order of the text, each whole or as one stretch of it.
    at = 0
    for line in shown(found):
        at = text.find(line.strip(), at)
        assert at >= 0, line
        at += len(line.strip())


@given(
    cases=st.integers(300, 3000),
    failures=st.lists(st.sampled_from(["alpha", "beta", "gamma", "delta"]), unique=True),
    limit=st.integers(200, 800),
)
def test_failures_stand_in_an_excerpt_and_repeated_lines_once(cases, failures, limit):
    """Broken, a coding agent's memory is its tools' noise, and the failures are not in it."""
    log = [f"tests/test_{n}.py::test_case PASSED [{n * 100 // cases}%]" for n in range(cases)]
    for n, name in enumerate(failures, 1):
        log.insert(n * cases // 5, f"FAILED tests/test_store.py::{name} - expected 3, got {n}")
    text = "\n".join(["session starts", *log, f"{len(failures)} failed"])
    found = excerpt(text, limit, count)
    assert all(f"::{name} - expected" in found for name in failures)
    assert found.count("PASSED") == 1
    assert f"[x{cases}]" in found, "nobody can tell how many lines a line stands for"
    assert found.startswith("session starts")
    assert found.endswith(f"{len(failures)} failed")


@given(rows=st.integers(300, 3000), limit=st.integers(250, 2000))
def test_a_filled_excerpt_of_a_table_holds_its_ends_and_a_sample(rows, limit):
    """Broken, of 3,000 rows one is shown in a context that is all but empty."""
    table = [f"{n},{('paid', 'open')[n % 2]},{n % 97}.50" for n in range(rows)]
    found = excerpt("\n".join(["id,status,amount", *table, "(end)"]), limit, count, filled=True)
    assert count(found) >= 0.85 * limit
    numbers = [int(line.split(",")[0]) for line in shown(found) if line[0].isdigit()]
    ends = (numbers[:5], numbers[-5:])
    assert ends == ([*range(5)], [*range(rows - 5, rows)]), "not both ends"
    gaps = [after - before for before, after in pairwise(numbers)]
    assert max(gaps) <= rows // 4, "a stretch of the table is not sampled"


def test_of_lines_of_one_weight_the_first_are_shown():
    """Broken once: sums in the order of a set told processes apart, and so did excerpts."""
    lines = [
        " ".join(f"{chr(97 + n)}{chr(97 + k)}x" * (1 + k) for k in range(9)) for n in range(26)
    ]
    known = [word for line in lines for k, word in enumerate(line.split()) for _ in range(k)]
    text = "\n".join(["start", *lines, *(f"{word} 1" for word in known), "end"])
    found = shown(excerpt(text, 600, count))
    assert [line in found for line in lines] == sorted(line in found for line in lines)[::-1]


def test_an_excerpt_shows_both_ends_and_marks_each_gap():
    """Broken, two lines that were far apart read as neighbours."""
    text = "\n".join(f"{word} says that it is {word * 2}" for word in map(chr, range(97, 123)))
    text = "\n".join(text.replace("says", f"says {verb}") for verb in ("no", "yes", "maybe"))
    head, *between, tail = excerpt(text, 120, count).splitlines()
    assert text.startswith(head)
    assert text.endswith(tail)
    assert GAP in between
    pieces = excerpt(text, 120, count).split(f"\n{GAP}\n")
    assert all(piece in text for piece in pieces), "a gap without a mark"


def test_a_text_of_one_long_line_is_cut_into_records_or_stretches():
    """Broken, one line of a megabyte is shown whole, or nothing of it."""
    records = ",".join(f'{{"id": {n}, "name": "item {n}"}}' for n in range(4000))
    found = excerpt(f'{{"items": [{records}]}}', 100, count)
    assert '{"id": 3999, "name": "item 3999"}]}' in found
    assert count(excerpt("0123456789abcdef" * 20_000, 100, count)) <= 100


def test_the_units_of_an_excerpt_are_lines_of_the_text():
    """Broken, gap marks become facts, or half a code block hides all that follows it."""
    text = "\n".join(["intro of it", "```py", *(f"call_{n}()" for n in range(900)), "the end"])
    found = excerpt(text, 60, count)
    split = units.split(found, index=0, role="tool", speaker="Tool", date="")
    assert [unit.text for unit in split] == ["intro of it", "call_0() [x900]", "the end"]


def test_a_listing_with_line_numbers_is_no_log_of_failures():
    """Broken, `except ... as error:` stands for a file, and the line that matters does not."""
    names = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"]
    lines = [f"{n}:    except {name}Error as error:" for n, name in enumerate(names * 8)]
    lines[40:40] = ["1474:", "1475:", "1476| return int(round(seconds / divisor))"]
    shown = excerpt("\n".join(["open file", *lines, "end"]), 120, count)
    assert "1476| return int(round(seconds / divisor))" in shown
    assert not re.search(r"^147[45]:", shown, re.MULTILINE)
    logged = "\n".join(["start", *lines, "12:30:01 ERROR disk full", *lines, "end"])
    assert "12:30:01 ERROR disk full" in excerpt(logged, 120, count)


@pytest.mark.parametrize(
    ("begin", "failed"), [("", "404: Not Found"), ("0|app  | ", "0|app  | Error: disk full")]
)
def test_a_number_before_a_message_makes_no_listing_of_a_file(begin, failed):
    """Broken, the one line that tells of the failure is left out for any other."""
    words = iter(map("".join, permutations("abcdefg")))  # so each line has rare words
    noise = [begin + " ".join(islice(words, 8)) for _ in range(100)]
    text = "\n".join(["start", *noise[:50], failed, *noise[50:], "end"])
    assert all(failed in excerpt(text, limit, count) for limit in range(150, 700, 50))
