"""Decides what people state about the direction of the work: decisions, constraints and the like.

A line is one clause that somebody said. Advice from an assistant decides nothing; a decision that
it reports as its own, or as "ours", counts, and a change that it reports has an effect. The
patterns (``signs``) are English.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from hiermem.core.text.lexicon import is_back_channel
from hiermem.models.offline.extraction import signs
from hiermem.models.offline.extraction.clause import clause, stems
from hiermem.models.offline.extraction.speech import Sentence
from hiermem.types.trivector import StrategyKind

#: Marks before quoted or drafted words, which are not the speaker's own.
_QUOTED: Final = re.compile(r"[\"\u201c\u2018:]\s*$|(?:^|\s)'$")


@dataclass(frozen=True, slots=True)
class StrategyLine:
    """One statement about the direction of the work."""

    kind: StrategyKind
    text: str
    messages: tuple[int, ...]


def strategy(said: Sequence[Sentence]) -> list[StrategyLine]:
    """Return the decisions, constraints, preferences, milestones and effects that people state."""
    found: list[StrategyLine] = []
    seen: list[frozenset[str]] = []
    for one in said:
        read = _direction(one)
        if read is None:
            continue
        kind, at = read
        text = clause(one.text, at)
        terms = stems(text)
        near = any(len(terms & other) >= 0.75 * max(1, len(terms)) for other in seen[-40:])
        if len(terms) < 3 or near or is_back_channel(text):
            continue
        seen.append(terms)
        found.append(StrategyLine(kind, text, (one.index,)))
    return found


def _direction(one: Sentence) -> tuple[StrategyKind, int] | None:  # noqa: PLR0911 - a row of cases
    """Return what kind of direction a sentence states, and where."""
    text = one.text
    if not one.own or one.agent:
        # What an assistant did itself has an effect; its advice has none yet.
        decided = None if one.asks or signs.OFFER.search(text) else signs.WE_DECIDED.search(text)
        if decided and not _QUOTED.search(text[: decided.start()]):
            return "decision", decided.start()
        fixed = signs.FIXED.search(text)
        effect = fixed and (one.agent or re.search(r"\d", text))
        return ("impact", fixed.start()) if fixed and effect else None
    if one.asks and not signs.ASIDE.search(text):
        return None
    if found := signs.DECIDED.search(text):
        return "decision", found.start()
    if found := signs.PREFERS.search(text):
        return "preference", found.start()
    if found := signs.IMPACT.search(text):
        return "impact", found.start()
    if (found := signs.MILESTONE.search(text)) and signs.DATED.search(text):
        return "milestone", found.start()
    if (found := signs.MUST.search(text)) and re.search(r"\d", text) and one.role == "user":
        return "constraint", found.start()
    return None
