"""Reads the facts in a text that a model wrote, so that a context shows them as plain dated lines.

Headings, labels of themes and the marks of lists are left out, and so is an overview if facts stand
below it: a reader of many summaries needs none of them. A line without a date of its own stands
under the days that the text covers.
"""

from __future__ import annotations

import re
from typing import Final

from hiermem.types import Unit

_ITEM: Final = re.compile(r"(?:[-*•–]|\(?\d{1,2}[.)])\s+")  # noqa: RUF001
_HEADING: Final = re.compile(r"#+\s*(.+?)[\s:#]*$|(?:\*\*)?([^:*\n]{1,60}?)(?:\*\*)?:(?:\*\*)?$")
_LABEL: Final = re.compile(r"theme(?: \d+)?:", re.IGNORECASE)
_OVERVIEWS: Final = frozenset(("overview", "summary"))
_DATE: Final = re.compile(r"[\[(]?(\d{4}-\d{2}-\d{2})[\])]?(?:\s*[:,–—-]\s*|\s+)(?=\S)")  # noqa: RUF001
_MARKS: Final = re.compile(r"\*\*(.+?)\*\*")


def span_of(days: tuple[str, str]) -> str:
    """Return the first and the last day as they stand above lines."""
    return days[0] if days[0] == days[1] else f"{days[0]} to {days[1]}"


def facts_of(text: str, days: tuple[str, str]) -> list[Unit]:
    r"""Return each fact of a model's text as a unit with its date, by day.

    ``days`` are the first and the last day that the text covers.

    >>> [(fact.date, fact.text) for fact in facts_of("## Overview\n- Pumps.\n## Key points\n"
    ...     "- 2024-03-02: Ada left.\n- It rained.", ("2024-03-01", "2024-03-02"))]
    [('2024-03-01 to 2024-03-02', 'It rained.'), ('2024-03-02', 'Ada left.')]
    """
    span = span_of(days)
    facts: list[tuple[str, str]] = []
    overview: list[tuple[str, str]] = []
    found = facts
    for line in map(str.strip, text.splitlines()):
        heading = _HEADING.fullmatch(line)
        if heading is not None:
            title = (heading[1] or heading[2] or "").strip("*: ").casefold()
            found = overview if title in _OVERVIEWS else facts
            continue
        item = _ITEM.match(line)
        said = _MARKS.sub(r"\1", line[item.end() if item else 0 :])
        dated = _DATE.match(said)
        said = said[dated.end() if dated else 0 :].strip()
        if said and not _LABEL.match(said):
            found.append((dated[1] if dated else span, said))
    # An ordinal of its own would join a fact to the line before it.
    ordered = sorted(facts or overview, key=lambda fact: fact[0][:10])
    return [Unit(None, 0, "user", "", date, said) for date, said in ordered]
