"""Headings of Markdown: those that a reader sees, and no line in a code block or a comment."""

import random

from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from sampling import drawn

from hiermem.bank.sections import front_matter, plain, sections, unclosed

#: Lines on which CommonMark and this reading agree whatever surrounds them.
PIECES = (
    "# A", "## B", "### C ###", "#### D", "####### no", "#no", "    ## code", "text", "more text",
    "===", "---", "- point", "> quote", "```", "```py", "````", "~~~", "", "", "<!-- open",
    "close -->", "<!-- one -->", "***", "\t## tab", "## ", "# [x](y) `z`", "* * *",
)  # fmt: skip
lines = st.lists(st.sampled_from(PIECES), max_size=14)
documents = lines.map("\n".join)


@drawn(300)
@given(documents)
def test_headings_are_those_that_commonmark_sees(text: str) -> None:
    """A heading that is none would let a note into a code block."""
    tokens = MarkdownIt("commonmark").parse(text)
    theirs = [
        (token.map[0], int(token.tag[1]))
        for token in tokens
        if token.type == "heading_open" and token.level == 0 and token.map
    ]
    found = sections(text)
    assert [(each.start, each.level) for each in found] == theirs
    ends = [*(each.start for each in found), len(text.split("\n"))]
    assert [each.own for each in found] == ends[1:]
    assert all(each.start < each.body <= each.own for each in found)


def test_a_heading_is_known_by_its_words() -> None:
    for heading in ("what works", "## What works", "**What Works:**", "##  What  works ##"):
        assert plain(heading) == "what works"


def test_front_matter_is_no_heading_and_a_rule_is_no_front_matter() -> None:
    text = "---\ntitle: mine\n---\n# A\n"
    assert front_matter(text) == "---\ntitle: mine\n---"
    assert [each.heading for each in sections(text)] == ["A"]
    for other in ("---\nA text\n---\n", "# A\n---\ntitle: x\n---\n", "---\ntitle: x\n", ""):
        assert front_matter(other) == ""


def test_an_open_code_block_or_comment_is_seen_at_its_end() -> None:
    assert unclosed("````\n```\n")
    assert unclosed("a <b>\n<!-- x\n")
    assert not unclosed("````\n```\n````")
    assert not unclosed("`` ```\n")


def test_a_heading_in_a_list_is_part_of_the_list() -> None:
    text = "## Notes\n\n- a point\n  # its heading\n\n    ## deeper\n\n## Next\n"
    assert [each.heading for each in sections(text)] == ["Notes", "Next"]


def test_reading_takes_time_in_proportion_to_the_text() -> None:
    """Every line an opener of something: no input makes the scanner look back."""
    chance = random.Random(5)
    for piece in ("# a\n", "- - - -\n", "```\n~~~\n", "<!--\n", "> > >\n", "a\n---\n", "#" * 50):
        text = piece * (200_000 // len(piece))
        found = sections(text)
        assert len(found) <= text.count("\n") + 1
    text = "\n".join(chance.choices(PIECES, k=30_000))
    assert len(sections(text)) > 0
