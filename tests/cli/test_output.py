"""What is printed cannot be made to lie or to steer the terminal."""

import ast
import doctest
import unicodedata
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiermem.cli import output
from hiermem.cli.output import clean, date_range, one_line, plural, share


@given(st.text(st.characters(codec=None, exclude_categories=())))
def test_nothing_that_a_terminal_obeys_survives_cleaning(text):
    kept = clean(text)
    assert not [c for c in kept if unicodedata.category(c) == "Cc" and c not in "\t\n"]
    assert not set(kept) & set(
        "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
    )
    kept.encode("utf-8")


@given(st.text())
def test_cleaning_twice_is_cleaning_once_and_keeps_the_order(text):
    kept = clean(text)
    assert clean(kept) == kept
    rest = iter(text)
    assert all(char in rest for char in kept), "what stays must stand in the same order"


def test_ordinary_text_in_any_script_is_printed_as_it_is():
    text = "Käse 47,0 ct\tčau 你好\n👩‍🌾 — “quoted”"
    assert clean(text) == text


@given(st.text(max_size=400), st.integers(1, 120))
def test_one_line_never_breaks_the_layout(text, width):
    line = one_line(text, width)
    assert len(line) <= width
    assert "\n" not in line
    assert "\t" not in line


@pytest.mark.parametrize(
    ("part", "whole", "said"),
    [(0, 10, "0 %"), (10, 10, "100 %"), (1, 1000, "1 %"), (999, 1000, "99 %"), (1, 0, "0 %")],
)
def test_a_share_says_all_or_nothing_only_where_that_is_true(part, whole, said):
    assert share(part, whole) == said


def test_counts_and_days_read_as_people_write_them():
    first, last = datetime(2026, 2, 2, tzinfo=UTC), datetime(2026, 3, 10, tzinfo=UTC)
    assert plural(1, "summary", "summaries") == "1 summary"
    assert plural(1204, "message") == "1,204 messages"
    assert date_range(first, last) == "2 Feb to 10 Mar 2026"
    assert date_range(first, first) == "2 Feb 2026"
    assert date_range(first.replace(year=2025), last) == "2 Feb 2025 to 10 Mar 2026"


def test_the_examples_in_the_docstrings_are_true():
    assert doctest.testmod(output).failed == 0


#: The public modules, and what marks the words that a search matched.
PUBLIC = (
    "hiermem.importers", "hiermem.mcp", "hiermem.types", "hiermem.models",
    "hiermem.convert.mermaid", "hiermem.search.query",
)  # fmt: skip


def test_the_command_line_knows_only_the_public_face():
    """Whatever it does, an application can do with the public modules alone."""
    inside = []
    for path in Path(output.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [each.name for each in node.names] if isinstance(node, ast.Import) else []
            inside += [
                f"{path.name}: {name}"
                for name in names
                if name.startswith("hiermem.")
                and not name.startswith("hiermem.cli")
                and name not in PUBLIC
            ]
    assert inside == []
