"""Extracts from a stretch of conversation without a model.

It reads the stretch in one pass into sentences and definitions (``speech``), keeps the entities
that they name (``things``), lists what was left open (``open_items``) and what was decided
(``strategy``), and returns an ``Answer`` that fits the tokens allowed. It finds no relations, and
closes nothing.

The same sources give the same answer, in any process, in time linear in their length, and never one
that is larger than asked. No words are invented: descriptions, justifications and items are the
conversation's own sentences.

``strategy`` lists what people state about the direction of the work: decisions, constraints and the
like. A line is one clause that somebody said. Advice from an assistant decides nothing; a decision
that it reports as its own, or as "ours", counts, and a change that it reports has an effect. What
somebody tries, wants, fears or asks decides nothing either. The patterns are English.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from hiermem.models.offline import speech
from hiermem.models.offline.open_items import open_ends
from hiermem.models.offline.speech import ASIDE, Sentence, clause, phrases, signs, stems
from hiermem.models.offline.things import Thing, collect
from hiermem.protocols import SourceText
from hiermem.summaries import salience
from hiermem.text import units
from hiermem.text.entity_names import CALENDAR, NATIONS, NO_NAME
from hiermem.text.policy import is_back_channel, is_heading
from hiermem.types import trivector
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


def strategy(sentences: Sequence[Sentence]) -> list[AnswerStrategy]:
    """Return the decisions, constraints, preferences, milestones and effects that people state."""
    strategies: list[AnswerStrategy] = []
    seen: list[frozenset[str]] = []
    for sentence in sentences:
        read = _direction(sentence)
        if read is None:
            continue
        kind, at = read
        text = clause(sentence.text, at)
        if ASIDE.match(text.removeprefix("Please ")):
            continue
        terms = stems(text)
        near = any(len(terms & other) >= 0.75 * max(1, len(terms)) for other in seen[-40:])
        if len(terms) < _LEAST[kind == "constraint"] or near or is_back_channel(text):
            continue
        seen.append(terms)
        line = AnswerStrategy(kind=kind, text=text[:MOST_IN_LINE], messages=(sentence.index,))
        strategies.append(line)
    return strategies


def _direction(sentence: Sentence) -> tuple[StrategyKind, int] | None:
    """Return what kind of direction a sentence states, and where."""
    text = sentence.text
    if sentence.asks and not ASIDE.search(text):
        return None
    # An assistant without a name decides only what it says "we" of; its advice has no effect yet,
    # and its orders are no preference.
    kinds: Iterable[StrategyKind] = _SIGNS if sentence.own else ("decision",)
    for kind in kinds:
        for match in _SIGNS[kind].finditer(text):
            before = text[: match.start()]
            if _OPEN_BEFORE.search(before) or (sentence.asks and ASIDE.match(text)):
                continue
            if kind == "constraint" and not re.search(r"\d", text):
                continue
            if not sentence.own and not re.search(r"\b(?:i|we)\b", match.group(), re.IGNORECASE):
                continue
            if sentence.agent and kind == "preference":
                continue
            return kind, match.start()
    return None


#: The most tokens of the summary.
SUMMARY_TOKENS: Final = 320
_ENTITIES, _DELTAS, _STRATEGY = 160, 60, 60
#: The messages that one item names. Entities are ranked by theirs, so they name as many as fit.
_FEWEST_MENTIONS: Final = 12
_DESCRIPTION: Final = 220
#: How often an answer that is too long is reduced.
_TRIES: Final = 17

_INTRODUCED: Final = re.compile(
    r"\b(?:I['\u2019]m|I am|[Mm]y name is|[Nn]ame['\u2019]s) ([A-Z][a-z]{1,30})(?=[.,;!]|$| and )"
)


def extract(
    sources: Sequence[SourceText], *, max_tokens: int, count: Callable[[str], int]
) -> trivector.Answer:
    """Extract from ``sources``, in order; the answer as JSON fits ``max_tokens``.

    Below about forty tokens no answer fits; then the smallest one is returned.
    """
    summary = _summary(sources, min(SUMMARY_TOKENS, max_tokens // 3), count)
    sources = [speech.composed(source) for source in sources]
    sentences = list(speech.sentences(sources))
    numbered = list(speech.numbered(sources))
    defined = [(index, *code) for index, source in numbered for code in speech.definitions(source)]
    shown = [
        (index, path)
        for index, source in numbered
        if source.role != "system"
        for path in speech.paths(source)
    ]
    people = list(dict.fromkeys(_people(sentences).values()))
    return _fitted(
        summary=summary,
        things=collect(sentences, defined, shown, people)[:_ENTITIES],
        opened=open_ends(sentences, sources)[::-1][:_DELTAS],
        lines=strategy(sentences)[-_STRATEGY:],
        max_tokens=max_tokens,
        count=count,
    )


def _people(sentences: Sequence[speech.Sentence]) -> dict[str, str]:
    """Return the name of each speaker who has one: their own, or the one they introduce."""
    named = {sentence.speaker: sentence.speaker for sentence in sentences if sentence.named}
    for sentence in sentences:
        if sentence.role == "user" and sentence.speaker not in named:
            match = _INTRODUCED.search(sentence.text)
            if match and match.group(1).lower() not in NATIONS | CALENDAR | NO_NAME:
                named[sentence.speaker] = match.group(1)
    return named


def _summary(sources: Sequence[SourceText], budget: int, count: Callable[[str], int]) -> str:
    """Return the most informative sentences, as the offline summariser chooses them."""
    said = [source for source in sources if source.role not in ("system", "tool")]
    pool = [unit for source in said for unit in units.of_source(source) if not unit.code]
    plain = [unit for unit in pool if not is_heading(unit.text)]
    return salience.select(plain or pool, budget, count).text[: trivector.MOST_IN_SUMMARY]


def _fitted(
    *,
    summary: str,
    things: Sequence[Thing],
    opened: Sequence[trivector.AnswerDelta],
    lines: Sequence[trivector.AnswerStrategy],
    max_tokens: int,
    count: Callable[[str], int],
) -> trivector.Answer:
    """Build the answer; to make it fit, drop places of entities first, then items of all kinds."""
    cuts = [(1.0, trivector.MOST_MENTIONS), *((0.8**n, _FEWEST_MENTIONS) for n in range(_TRIES))]
    for share, most in cuts:
        # Names are many and mostly small; open items and decisions are dropped last.
        softer = share**0.5
        fitting = things[: int(len(things) * share)]
        answer = trivector.Answer(
            summary=summary,
            features=_features(fitting),
            entities=tuple(_entity(thing, most) for thing in fitting),
            relations=(),
            deltas=tuple(opened[: round(len(opened) * softer)]),
            strategy=tuple(lines[len(lines) - round(len(lines) * softer) :]),
        )
        if count(answer.model_dump_json()) <= max_tokens:
            return answer
    bare = trivector.Answer(summary=summary)
    fits = count(bare.model_dump_json()) <= max_tokens
    return bare if fits else trivector.Answer(summary="")


def _features(things: Sequence[Thing]) -> tuple[str, ...]:
    """Name the features of the stretch: modules of its files, technologies and concepts, dotted."""
    names: dict[str, None] = {}
    for thing in things:
        if thing.type == "file":
            parts = [
                p for p in thing.name.rsplit(".", 1)[0].split("/") if p not in ("", "src", "~")
            ]
            names[".".join(parts[-2:]).lower()] = None
        elif thing.type in ("technology", "concept", "event"):
            kind = {"technology": "tech", "event": "event"}.get(thing.type, "topic")
            names[f"{kind}.{'-'.join(thing.name.lower().split())}"] = None
    return tuple(name[: trivector.MOST_IN_TAG] for name in list(names)[:16] if name.strip("."))


def _entity(thing: Thing, most: int) -> trivector.AnswerEntity:
    name = thing.name[: trivector.MOST_IN_NAME]
    about = clause(thing.about, max(0, thing.about.find(thing.name)))
    aliases = [
        spelling[: trivector.MOST_IN_NAME] for spelling in thing.spellings if spelling != thing.name
    ]
    confidence = min(1.0, 0.15 * len(thing.own) + 0.05 * len(thing.messages))
    return trivector.AnswerEntity(
        type=thing.type,
        name=name,
        aliases=tuple(aliases[: trivector.MOST_ALIASES]),
        description=_short(about),
        confidence=round(min(0.99, thing.sure * (0.8 + 0.2 * confidence)), 2),
        messages=_newest(thing.messages, most),
    )


def _newest(messages: dict[int, None], most: int) -> tuple[int, ...]:
    """Return the first message and the newest of the others, ``most`` of them together."""
    ordered = sorted(messages)
    if len(ordered) <= most:
        return tuple(ordered)
    return (ordered[0], *ordered[len(ordered) - most + 1 :])


def _short(text: str) -> str:
    """Return a line of bounded length, cut at a word."""
    text = " ".join(text.split())
    if len(text) <= _DESCRIPTION:
        return text
    cut = text[: _DESCRIPTION - 1]
    return cut[: cut.rfind(" ") if " " in cut else len(cut)].rstrip(" ,;:") + "…"
