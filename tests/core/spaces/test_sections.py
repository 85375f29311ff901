"""Sections of Markdown: an edit changes the one that it names, and no other.

An edit comes from a model. If one landed in a code block, in the second of two sections of one
name, or took in what follows it, text that nobody spoke of would be lost.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from sampling import drawn

from hiermem.core.spaces.answer import SectionEdit
from hiermem.core.spaces.clean import lines_of
from hiermem.core.spaces.sections import (
    EditError,
    apply_edit,
    find,
    front_matter,
    outline,
    sections,
    twice,
    unclosed,
)

FILE = """\
# Progress

What this is.

## What works

- login

### Details

Tokens last 15 minutes.

```
## not a heading
```

What is left
------------

- export
"""
#: Lines on which CommonMark and this reading agree whatever surrounds them.
PIECES = (
    "# A", "## B", "### C ###", "#### D", "####### no", "#no", "    ## code", "text", "more text",
    "===", "---", "- point", "> quote", "```", "```py", "````", "~~~", "", "", "<!-- open",
    "close -->", "<!-- one -->", "***", "\t## tab", "## ", "# [x](y) `z`", "* * *",
)  # fmt: skip
lines = st.lists(st.sampled_from(PIECES), max_size=14)
documents = lines.map("\n".join)


def edit(operation: str, heading: str, text: str = "", **more: str) -> SectionEdit:
    return SectionEdit(operation=operation, heading=heading, text=text, **more)


@drawn(300)
@given(documents)
def test_headings_are_those_that_commonmark_sees(text: str) -> None:
    """A heading that is none would let an edit into a code block; one missed would lose what
    follows it."""
    tokens = MarkdownIt("commonmark").parse(text)
    theirs = [
        (token.map[0], int(token.tag[1]))
        for token in tokens
        if token.type == "heading_open" and token.level == 0 and token.map
    ]
    assert [(each.start, each.level) for each in sections(text)] == theirs


@drawn(150)
@given(documents)
def test_sections_lie_inside_each_other_and_cover_all_that_follows_a_heading(text: str) -> None:
    found = sections(text)
    end = len(text.split("\n"))
    for at, each in enumerate(found):
        assert each.start < each.body <= each.own <= each.stop <= end
        assert each.own == (found[at + 1].start if at + 1 < len(found) else end)
        inside = [other for other in found if each.start < other.start < each.stop]
        assert all(other.level > each.level for other in inside)
        assert all(each.name in other.path for other in inside)


edits = st.builds(
    SectionEdit,
    operation=st.sampled_from(("append", "replace", "insert", "delete")),
    heading=st.sampled_from(("# A", "B", "## B", "C", "D", "A > B", "nowhere", "## New", "# New")),
    text=documents | st.sampled_from(("- a point", "plain", "", "## B\n\nits own heading")),
    after=st.sampled_from(("", "", "A", "B", "D")),
    reason=st.sampled_from(("", "no longer needed")),
)


@drawn(300)
@given(documents, edits)
def test_an_edit_is_made_in_its_section_alone_or_refused(text: str, one: SectionEdit) -> None:
    """All lines that are not the section's own come out as they were, in their order."""
    before = sections(text)
    try:
        after = apply_edit(text, one)
    except EditError as error:
        assert str(error)
        return
    old = [line for line in text.split("\n") if line.strip()]
    new = [line for line in after.split("\n") if line.strip()]
    if one.operation == "insert":
        kept = old
    else:
        section = find(text, one.heading)
        assert section in before
        rows = text.split("\n")
        start, stop = {
            "append": (section.own, section.own),
            "replace": (section.body, section.stop),
            "delete": (section.start, section.stop),
        }[one.operation]
        kept = [line for line in (*rows[:start], *rows[stop:]) if line.strip()]
    rest = iter(new)
    assert all(any(line == other for other in rest) for line in kept)
    assert twice(after) <= twice(text)


@drawn(150)
@given(documents, edits)
def test_what_only_adds_loses_no_line(text: str, one: SectionEdit) -> None:
    if one.operation in ("replace", "delete"):
        return
    try:
        after = apply_edit(text, one)
    except EditError:
        return
    assert set(lines_of(text)) <= set(lines_of(after))
    # But for the section's own heading, which may be underlined.
    assert set(lines_of(one.text)[2:]) <= set(lines_of(after))


def test_the_four_operations() -> None:
    appended = apply_edit(FILE, edit("append", "What works", "- logout"))
    assert "- login\n- logout\n\n### Details" in appended
    replaced = apply_edit(FILE, edit("replace", "## What is left", "nothing"))
    assert replaced.endswith("What is left\n------------\n\nnothing\n")
    inserted = apply_edit(FILE, edit("insert", "Risks", "None known.", after="What works"))
    assert "```\n\n## Risks\n\nNone known.\n\nWhat is left\n" in inserted
    deleted = apply_edit(FILE, edit("delete", "Details", reason="moved to auth.md"))
    assert "Tokens" not in deleted
    assert "- login\n\nWhat is left" in deleted
    for after in (appended, replaced, inserted, deleted):
        assert after.startswith("# Progress\n\nWhat this is.\n\n## What works\n\n- login\n")


def test_a_section_appended_with_a_heading_of_its_own_goes_below_those_that_are_there() -> None:
    after = apply_edit(FILE, edit("append", "What works", "### More\n\nx"))
    assert after.index("### Details") < after.index("### More") < after.index("What is left")


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (edit("append", "Nowhere", "x"), "no section of that heading"),
        (edit("append", "not a heading", "x"), "no section of that heading"),
        (edit("append", "What works", "  \n"), "text is empty"),
        (edit("replace", "What works", ""), "removed by delete"),
        (edit("delete", "What works"), "the reason"),
        (edit("delete", "What works", reason=" \u200b"), "the reason"),
        (edit("insert", " ## ", "x"), "needs a heading"),
        (edit("insert", "What works", "x"), "is there"),
        (edit("append", "What works", "```\nopen"), "does not close it"),
        (edit("append", "What works", "<!-- open"), "does not close it"),
        (edit("replace", "Details", "# Another file"), "takes in the sections"),
        (edit("insert", "# Top", "x", after="Details"), "takes in the sections"),
    ],
)
def test_what_is_not_certain_is_refused_with_the_reason(one: SectionEdit, why: str) -> None:
    with pytest.raises(EditError, match=why):
        apply_edit(FILE, one)


def test_of_two_sections_with_one_heading_none_is_guessed() -> None:
    """The same section twice: the wrong one of them would be changed half of the time."""
    text = "# Log\n\n## May\n\n### Done\n\na\n\n## June\n\n### Done\n\nb\n"
    with pytest.raises(EditError, match="2 sections have that heading"):
        apply_edit(text, edit("append", "Done", "x"))
    assert apply_edit(text, edit("append", "June > Done", "- x")).endswith("b\n\n- x\n")
    with pytest.raises(EditError, match="is there"):
        apply_edit(text, edit("insert", "### Done", "x", after="June"))


def test_a_heading_is_known_by_its_words() -> None:
    for heading in ("what works", "## What works", "**What Works:**", "##  What  works ##"):
        assert find(FILE, heading).start == 4
    assert find("## A > B\n\n# A\n\n## B\n", "A > B").start == 0
    # Marks that are another level's are of no account where only one section has the words.
    assert find(FILE, "# What works").start == 4
    text = "# Log\n\na\n\n## Log\n\nb\n"
    assert find(text, "## Log").start == 4


def test_a_file_of_which_the_outline_was_shown_is_only_added_to() -> None:
    for one in (edit("replace", "What works", "x"), edit("delete", "Details", reason="old")):
        with pytest.raises(EditError, match="outline"):
            apply_edit(FILE, one, hidden=True)
    assert "- x" in apply_edit(FILE, edit("append", "What works", "- x"), hidden=True)


def test_the_outline_names_each_heading_and_what_it_holds() -> None:
    assert outline(FILE).splitlines() == [
        "# Progress (3 lines)", "## What works (3 lines)", "### Details (7 lines)",
        "## What is left (3 lines)",
    ]  # fmt: skip


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
