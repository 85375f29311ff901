"""Rules: the files they name, how each begins, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling import drawn

from hiermem.bank.rules import MAX_RULES, check_file_name, read_rules
from hiermem.bank.sections import sections
from hiermem.errors import InvalidMessageError, UsageError

BANK = """\
# Memory bank

The core files, from the **brief** on. See docs/guide.md and https://example.org/readme.md.

## 1. `projectbrief.md`

Foundation of all others.

### Goals
### Scope

## 2. activeContext.md - what is being worked on

- **Current focus**: the task at hand
- Recent changes - what changed last
- Next steps

## progress.md

### What works
### What is left

- decisions.md: why, by whom; when
  - Open questions
"""


def headings(text: str) -> dict[str, tuple[str, ...]]:
    return {file.name: file.headings for file in read_rules(text).files}


def test_files_and_their_headings_are_found_however_they_are_written() -> None:
    assert headings(BANK) == {
        "projectbrief.md": ("Goals", "Scope"),
        "activeContext.md": ("Current focus", "Recent changes", "Next steps"),
        "progress.md": ("What works", "What is left"),
        "decisions.md": ("Open questions",),
    }


def test_what_a_file_is_for_gives_its_headings_where_nothing_else_does() -> None:
    assert headings("# Files\n- progress.md: what works\n- decisions.md: why, by whom") == {
        "progress.md": ("What works",),
        "decisions.md": ("Why", "By whom"),
    }


def test_a_file_begins_with_its_title_and_headings() -> None:
    (file,) = read_rules("Write tech_debt.md: what is owed, to whom").files
    assert file.skeleton == "# Tech debt\n\n## What is owed\n\n## To whom\n"
    assert [each.level for each in sections(file.skeleton)] == [1, 2, 2]


def test_paths_addresses_and_patterns_name_no_file() -> None:
    for text in (
        "docs/a.md",
        "https://x.org/a.md",
        "*.md",
        "../a.md",
        "a.mdx",
        "a.md.txt",
        ".md",
        "",
    ):
        with pytest.raises(UsageError, match="name no file"):
            read_rules(f"# Files\n{text}\n")


def test_two_names_that_are_one_file_on_some_systems_are_refused() -> None:
    with pytest.raises(UsageError, match=r"'Progress\.md' and 'progress\.md'"):
        read_rules("Progress.md, progress.md")


def test_too_many_files_and_too_much_text_are_refused() -> None:
    read_rules(" ".join(f"f{n}.md" for n in range(100)))
    with pytest.raises(UsageError, match="at most 100"):
        read_rules(" ".join(f"f{n}.md" for n in range(101)))
    with pytest.raises(InvalidMessageError):
        read_rules("a.md " + "x" * MAX_RULES)
    for bad in ("a.md \x00", "a.md \ud800", None, b"a.md"):
        with pytest.raises(InvalidMessageError):
            read_rules(bad)  # type: ignore[arg-type]


pieces = st.sampled_from(
    ("a.md", "b c.md", "./d.md", "_e.md_", "**f.md**", "# ", "## ", "- ", "  - ", "1. ", "```\n",
     "x", ": ", ", ", "\n", "\n\n", "/", ".", "é.md", "|")
)  # fmt: skip


@drawn(300)
@given(st.lists(pieces, max_size=20).map("".join))
def test_any_text_gives_files_that_can_be_written_or_is_refused(text: str) -> None:
    try:
        rules = read_rules(text)
    except UsageError:
        return
    assert rules.files
    for file in rules.files:
        assert check_file_name(file.name) is None
        titles = [each.heading for each in sections(file.skeleton)]
        assert titles == [file.title, *file.headings]
        assert len(set(titles)) == len(titles)
