"""Decides what people state about the direction of the work: decisions, constraints and the like.

A line is one clause that somebody said. Advice from an assistant decides nothing; a decision that
it reports as its own, or as "ours", counts, and a change that it reports has an effect. What
somebody tries, wants, fears or asks decides nothing either. The patterns are English.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from hiermem.core.text.lexicon import is_back_channel
from hiermem.models.offline.extraction.clause import ASIDE, clause, stems
from hiermem.models.offline.extraction.speech import Sentence
from hiermem.types.trivector import StrategyKind

_I: Final = r"\b(?:i|we)(?:['’]ve| have)?(?: (?:just|already|finally|now|also|all|both))? "  # noqa: RUF001
_OBJECT: Final = r"(?! (?:it|this|these|those|them|him|her|furniture|between|in |whether))"
_MONTHS: Final = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
_DATE: Final = (
    rf"(?:{_MONTHS} \d|\d{{1,2}}(?:st|nd|rd|th)? (?:of )?{_MONTHS}|\d{{4}}-\d\d|q[1-4]\b"
    rf"|{_MONTHS} \d{{4}}|the end of |next (?:week|month|year)|(?:mon|tues|wednes|thurs|fri)day)"
)
_CHANGED: Final = (
    "reduced|improved|increased|decreased|dropped|boosted|raised|lowered|shortened|cut|grew|grown"
    "|brought|sped up|rose|risen|fell|fallen|reduces|improves|increases|went (?:up|down)"
)
_FIGURE: Final = r"[$€£]?\d[\d.,]*(?:\s?%|\s?(?!to\b)[a-zA-Z]{1,10}\b)?"


def _signs(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


#: What each kind is stated by, in the order in which they are asked.
_SIGNS: Final[tuple[tuple[StrategyKind, re.Pattern[str]], ...]] = (
    ("decision", _signs(
        r"^(?:decision(?: \d+)?|decided|agreed) ?:|\b(?:board|team|council|committee|management"
        r"|client) (?:unanimously )?(?:decided|agreed|approved)\b"
        rf"|{_I}(?:decided|chosen|chose|opted|settled on|agreed (?:to|on|that)|switched (?:to|from)"
        r"|migrated (?:to|from)|moved (?:from \S+ to|over to)|went with|committed to)\b"
        rf"{_OBJECT}|\b(?:i|we)(?:['’]ll| will| am|['’]m|['’]re| are) (?:going to (?:go|stick) with"  # noqa: RUF001
        r"|go with|going with|stick (?:to|with)|switching to)\b|\bdecision (?:is|was) to\b")),
    ("preference", _signs(
        r"^(?:please )?(?:always|never) (?!(?:been|an?|the|up|had|good|great|nice|happy|glad|fun|so|in|on|there|here|was|is|felt|ready"
        r"|excited|wanted|loved|knew|thought|mind|too)\b)(?!\w+(?:ing|ed)\b)[a-z]+ \w"
        rf"|{_I}(?:really |generally |usually )?prefer\b(?! to start)|\bmy preference is\b"
        r"|\bfrom now on\b|\bi(?:['’]d| would) rather\b")),  # noqa: RUF001
    ("impact", _signs(
        rf"\b(?:{_CHANGED})\b[^.?]{{0,70}}?\b(?:by (?:about |around |over )?{_FIGURE}"
        rf"|from {_FIGURE}[^.?]{{0,20}}? to {_FIGURE})"
        rf"|\b(?:{_CHANGED})\b[^.?]{{0,40}} to {_FIGURE}")),
    ("milestone", _signs(
        rf"\bdeadline (?:of|is|on|for|to)\b[^.?]{{0,60}}?{_DATE}|{_DATE}[^.?]{{0,12}} deadline\b"
        rf"|\b(?:due|scheduled|planned|targets?|targeted|rescheduled)\b[^.?]{{0,40}}? (?:on|by|for|from|to)"
        rf" [^.?]{{0,12}}{_DATE}"
        r"|\b(?:finish|complet|submit|deliver|publish|launch|releas|tagg|start|sign|defend|deploy"
        rf"|go live|went live|goes live|reach|gather|finali[sz])\w*\b[^.?]{{0,60}}? (?:on|by|before|in) [^.?]{{0,12}}"
        rf"{_DATE}|\bsprint \d[^.?]{{0,40}}{_DATE}")),
    ("constraint", _signs(
        r"\b(?:must not|mustn['’]t|(?:is|are) not allowed|cannot exceed|can['’]t exceed"  # noqa: RUF001
        rf"|no more than {_FIGURE}|(?:is |are |be )?limited to {_FIGURE}|budget (?:is|of)"
        rf"|has to be (?:under|below|within) {_FIGURE}|must (?:be|stay|remain|fit|run|work)\b"
        rf"|(?:keep|stay|stays|loads?|remain)\b[^.?]{{0,40}} (?:under|below|within) {_FIGURE})")),
)  # fmt: skip
#: The fewest telling words of a line; a limit has its figure too.
_LEAST: Final = (2, 1)
#: What makes a statement a wish, a fear, a plan or a quotation.
_OPEN_BEFORE: Final = _signs(
    r"\b(?:try(?:ing)? to|want(?:s|ed)? to|would like to|['’]d like to|hop(?:e|ing) to|need to"  # noqa: RUF001
    r"|how to|how (?:can|could|do|should) (?:i|we)|aim(?:ing)? to|goal (?:is|of)|help me|ways? to"
    r"|make sure(?: that)?(?: (?:i|we))?|trying to decide|plan(?:ning)? to|could|would|should|might|whether|if|once|when|going to"
    r"|can you|not|n['’]t)\b(?:(?!\b(?:i['’]ve|we['’]ve|i|we|which|that)\b)[^,;.])*$"  # noqa: RUF001
    r"|[\"“‘:]\s*$|(?:^|\s)'$"
)
#: What makes a statement one of what may be, or of somebody else; a date or a limit may be ahead.
_ABLE: Final = _signs(r"\b(?:you|can|will|['’]ll)\b(?:(?!\b(?:i|we|which|that)\b)[^,;.])*$")  # noqa: RUF001


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
        if ASIDE.match(text.removeprefix("Please ")):
            continue
        terms = stems(text)
        near = any(len(terms & other) >= 0.75 * max(1, len(terms)) for other in seen[-40:])
        if len(terms) < _LEAST[kind == "constraint"] or near or is_back_channel(text):
            continue
        seen.append(terms)
        found.append(StrategyLine(kind, text, (one.index,)))
    return found


def _direction(one: Sentence) -> tuple[StrategyKind, int] | None:
    """Return what kind of direction a sentence states, and where."""
    text = one.text
    if one.asks and not ASIDE.search(text):
        return None
    advice = not one.own
    for kind, sign in _SIGNS:
        for found in sign.finditer(text):
            before = text[: found.start()]
            able = kind not in ("milestone", "constraint") and _ABLE.search(before)
            if able or _OPEN_BEFORE.search(before) or (one.asks and ASIDE.match(text)):
                continue
            if kind == "constraint" and not re.search(r"\d", text):
                continue
            # An assistant without a name decides only what it says "we" of; its advice has no
            # effect yet, and its orders are no preference.
            ours = kind == "decision" and re.search(r"\b(?:i|we)\b", found.group(), re.IGNORECASE)
            if advice and not ours:
                continue
            if one.agent and kind == "preference":
                continue
            return kind, found.start()
    return None
