"""Decides what people state about the direction of the work: decisions, constraints and the like.

A line is one clause that somebody said. Advice from an assistant decides nothing; a decision that
it reports as its own, or as "ours", counts, and a change that it reports has an effect. What
somebody tries, wants, fears or asks decides nothing either. The patterns are English.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from hiermem.models.offline.extraction.speech import ASIDE, Sentence, clause, phrases, signs, stems
from hiermem.text.lexicon import is_back_channel
from hiermem.types.trivector import MOST_IN_LINE, AnswerStrategy, StrategyKind

_I: Final = r"\b(?:i|we)(?:['’]ve| have)?(?: (?:just|already|finally|now|also|all|both))? "  # noqa: RUF001
_MONTHS: Final = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
_DATE: Final = (
    rf"(?:{_MONTHS} \d|\d{{1,2}}(?:st|nd|rd|th)? (?:of )?{_MONTHS}|\d{{4}}-\d\d|q[1-4]\b"
    r"|the end of |next (?:week|month|year)|(?:mon|tues|wednes|thurs|fri)day)"
)
_CHANGED: Final = rf"\b{phrases('changed')}\b[^.?]"
_FIGURE: Final = r"[$€£]?\d[\d.,]*(?:\s?%|\s?(?!to\b)[a-zA-Z]{1,10}\b)?"


#: What each kind is stated by, in the order in which they are asked.
_SIGNS: Final[dict[StrategyKind, re.Pattern[str]]] = {
    "decision": signs(
        r"^(?:decision(?: \d+)?|decided|agreed) ?:|\bdecision (?:is|was) to\b",
        rf"\b{phrases('who decides')} (?:unanimously )?(?:decided|agreed|approved)\b",
        rf"{_I}{phrases('decided')}\b(?! {phrases('not decided')}\b)",
        rf"\b(?:i|we)(?:['’]ll| will| am|['’]m|['’]re| are)? {phrases('deciding')}\b",  # noqa: RUF001
    ),
    "preference": signs(
        rf"^(?:please )?(?:always|never) (?!(?:{phrases('no order')}|\w+(?:ing|ed))\b)[a-z]+ \w",
        rf"{_I}(?:really |generally |usually )?prefer\b(?! to start)|\bmy preference is\b",
        r"\bfrom now on\b|\bi(?:['’]d| would) rather\b",  # noqa: RUF001
    ),
    "impact": signs(
        rf"{_CHANGED}{{0,70}}?\bfrom {_FIGURE}[^.?]{{0,20}}? to {_FIGURE}",
        rf"{_CHANGED}{{0,70}}?\bby (?:about |around |over )?{_FIGURE}",
        rf"{_CHANGED}{{0,40}} to {_FIGURE}",
    ),
    "milestone": signs(
        rf"\bdeadline (?:of|is|on|for|to)\b[^.?]{{0,60}}?{_DATE}|{_DATE}[^.?]{{0,12}} deadline\b",
        r"\b(?:due|scheduled|planned|targets?|targeted|rescheduled)\b[^.?]{0,40}?"
        rf" (?:on|by|for|from|to) [^.?]{{0,12}}{_DATE}",
        rf"\b{phrases('reached')}\w*\b[^.?]{{0,60}}? (?:on|by|before|in) [^.?]{{0,12}}{_DATE}",
    ),
    "constraint": signs(
        rf"\b(?:{phrases('not allowed')}|(?:no more than|limited to) {_FIGURE})\b",
        r"\b(?:has to be|keep|stay|stays|loads?|remain)\b[^.?]{0,40}"
        rf" (?:under|below|within) {_FIGURE}",
    ),
}
#: The fewest telling words of a line; a limit has its figure too.
_LEAST: Final = (2, 1)
#: What makes a statement a wish, a fear, a plan or a quotation.
_OPEN_BEFORE: Final = signs(
    rf"(?:\b{phrases('not yet')}|n['’]t)\b"  # noqa: RUF001
    r"(?:(?!\b(?:i|we|which|that)\b)[^,;.])*$|[\"“‘:]\s*$|(?:^|\s)'$",  # noqa: RUF001
)
#: Words by which a statement is hypothetical or of somebody else; a date or a limit may follow.
_ABLE: Final = signs(r"\b(?:you|can|will|['’]ll)\b(?:(?!\b(?:i|we|which|that)\b)[^,;.])*$")  # noqa: RUF001


def strategy(said: Sequence[Sentence]) -> list[AnswerStrategy]:
    """Return the decisions, constraints, preferences, milestones and effects that people state."""
    found: list[AnswerStrategy] = []
    seen: list[frozenset[str]] = []
    for one in said:
        read = _direction(one)
        if read is None:
            continue
        kind, at = read
        text = clause(one.text, at)
        if ASIDE.match(text.removeprefix("Please ")):
            continue
        terms = stems(text)
        near = any(len(terms & other) >= 0.75 * max(1, len(terms)) for other in seen[-40:])
        if len(terms) < _LEAST[kind == "constraint"] or near or is_back_channel(text):
            continue
        seen.append(terms)
        line = AnswerStrategy(kind=kind, text=text[:MOST_IN_LINE], messages=(one.index,))
        found.append(line)
    return found


def _direction(one: Sentence) -> tuple[StrategyKind, int] | None:
    """Return what kind of direction a sentence states, and where."""
    text = one.text
    if one.asks and not ASIDE.search(text):
        return None
    # An assistant without a name decides only what it says "we" of; its advice has no effect yet,
    # and its orders are no preference.
    kinds: Iterable[StrategyKind] = _SIGNS if one.own else ("decision",)
    for kind in kinds:
        for found in _SIGNS[kind].finditer(text):
            before = text[: found.start()]
            able = kind not in ("milestone", "constraint") and _ABLE.search(before)
            if able or _OPEN_BEFORE.search(before) or (one.asks and ASIDE.match(text)):
                continue
            if kind == "constraint" and not re.search(r"\d", text):
                continue
            if not one.own and not re.search(r"\b(?:i|we)\b", found.group(), re.IGNORECASE):
                continue
            if one.agent and kind == "preference":
                continue
            return kind, found.start()
    return None
