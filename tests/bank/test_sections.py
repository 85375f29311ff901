"""Headings of Markdown: those that a reader sees, and no line in a code block or a comment."""

from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from sampling import drawn

from hiermem.bank.sections import plain, sections, unclosed

#: Lines on which CommonMark and this reading agree whatever surrounds them.
PIECES = (
    "# A", "## B", "### C ###", "#### D", "####### no", "#no", "    ## code", "text", "more text",
    "```", "```py", "````", "~~~", "", "", "<!-- open",
    "close -->", "<!-- one -->", "***", "\t## tab", "## ", "# [x](y) `z`",
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
    assert [level for _, level, _ in found] == [level for _, level in theirs]
    ends = [*(start for start, _ in theirs), len(text.split("\n"))]
    assert [own for _, _, own in found] == ends[1:]


def test_a_heading_is_known_by_its_words() -> None:
    for heading in ("what works", "## What works", "**What Works:**", "##  What  works ##"):
        assert plain(heading) == "what works"


def test_an_open_code_block_or_comment_is_seen_at_its_end() -> None:
    assert unclosed("````\n```\n")
    assert unclosed("a <b>\n<!-- x\n")
    assert not unclosed("````\n```\n````")
    assert not unclosed("`` ```\n")
