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


@pytest.mark.parametrize(
    ("rules", "files"),
    [
        (BANK, [
            "# Projectbrief\n\n## Goals\n\n## Scope\n",
            "# Active context\n\n## Current focus\n\n## Recent changes\n\n## Next steps\n",
            "# Progress\n\n## What works\n\n## What is left\n",
            "# Decisions\n\n## Open questions\n",
        ]),
        # What a file is for gives its headings if nothing else does.
        ("# Files\n- progress.md: what works\n- tech_debt.md: what is owed, to whom", [
            "# Progress\n\n## What works\n",
            "# Tech debt\n\n## What is owed\n\n## To whom\n",
        ]),
        # Each heading once, and at most 24.
        ("- log.md: dates, Dates, why", ["# Log\n\n## Dates\n\n## Why\n"]),
        ("- log.md: " + ", ".join(f"part {n}" for n in range(30)),
         ["# Log\n" + "".join(f"\n## Part {n}\n" for n in range(24))]),
    ],
)  # fmt: skip
def test_a_file_begins_with_its_title_and_headings(rules: str, files: list[str]) -> None:
    assert list(read_rules(rules).files.values()) == files


def test_paths_addresses_and_patterns_name_no_file() -> None:
    paths = ("docs/a.md", "https://x.org/a.md", "*.md", "../a.md", "a.mdx", "a.md.txt", ".md", "")
    for text in paths:
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
    for name, text in rules.files.items():
        assert check_file_name(name) is None
        titles = [heading for heading, _, _ in sections(text)]
        assert titles == [line.lstrip("# ") for line in text.split("\n") if line]
        assert len(set(titles)) == len(titles)
