"""Extracts from a stretch of conversation without a model.

It reads the stretch in one pass into sentences and definitions (``speech``), keeps the entities
that they name (``things``), lists what was left open (``open_items``) and what was decided
(``strategy``), and returns an ``Answer`` that fits the tokens allowed. It finds no relations, and
closes nothing.

The same sources give the same answer, in any process, in time linear in their length, and never one
that is larger than asked. No words are invented: descriptions, justifications and items are the
conversation's own sentences.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from hiermem.models.offline.extraction import speech
from hiermem.models.offline.extraction.open_items import OpenItem, open_ends
from hiermem.models.offline.extraction.speech import clause
from hiermem.models.offline.extraction.strategy import strategy
from hiermem.models.offline.extraction.things import Thing, collect
from hiermem.protocols import SourceText
from hiermem.summaries import salience
from hiermem.text import units
from hiermem.text.entity_names import CALENDAR, NATIONS, NO_NAME
from hiermem.types import Unit, trivector

#: The most tokens of the summary.
SUMMARY_TOKENS: Final = 320
_ENTITIES, _DELTAS, _STRATEGY = 160, 60, 60
#: The messages that one item names. Entities are ranked by theirs, so they name as many as fit.
_FEWEST_MENTIONS: Final = 12
_DESCRIPTION: Final = 220
#: How often an answer that is too long is reduced.
_TRIES: Final = 17

#: The most words of an introduction to what follows, and of a bare point of a list.
_LEAD, _POINT = 12, 5
_INTRODUCED: Final = re.compile(
    r"\b(?:I['\u2019]m|I am|[Mm]y name is|[Nn]ame['\u2019]s) ([A-Z][a-z]{1,30})(?=[.,;!]|$| and )"
)


def extract(
    sources: Sequence[SourceText], *, max_tokens: int, count: Callable[[str], int]
) -> trivector.Answer:
    """Extract from ``sources``, in order; the answer, as ``write`` writes it, fits ``max_tokens``.

    Below about forty tokens no answer fits; then the smallest one is returned.
    """
    summary = _summary(sources, min(SUMMARY_TOKENS, max_tokens // 3), count)
    sources = [speech.composed(source) for source in sources]
    said = list(speech.sentences(sources))
    numbered = list(speech.numbered(sources))
    defined = [d for index, source in numbered for d in speech.definitions(source, index)]
    shown = [
        (index, path)
        for index, source in numbered
        if source.role != "system"
        for path in speech.paths(source)
    ]
    people = list(dict.fromkeys(_people(said).values()))
    return _fitted(
        summary=summary,
        things=collect(said, defined, shown, people)[:_ENTITIES],
        opened=open_ends(said, sources)[::-1][:_DELTAS],
        lines=strategy(said)[-_STRATEGY:],
        max_tokens=max_tokens,
        count=count,
    )


def write(answer: trivector.Answer) -> str:
    """Write an answer as the JSON that a model returns."""
    return answer.model_dump_json()


def _people(said: Sequence[speech.Sentence]) -> dict[str, str]:
    """Return the name of each speaker who has one: their own, or the one they introduce."""
    named = {one.speaker: one.speaker for one in said if one.named}
    for one in said:
        if one.role == "user" and one.speaker not in named:
            found = _INTRODUCED.search(one.text)
            if found and found.group(1).lower() not in NATIONS | CALENDAR | NO_NAME:
                named[one.speaker] = found.group(1)
    return named


def _summary(sources: Sequence[SourceText], budget: int, count: Callable[[str], int]) -> str:
    """Return the most informative sentences, as the offline summariser chooses them."""
    pool = [
        unit
        for source in sources
        if source.role not in ("system", "tool")
        for unit in _informative(source)
    ]
    return salience.select(pool, budget, count).text[: trivector.MOST_IN_SUMMARY]


def _informative(source: SourceText) -> list[Unit]:
    """Return the informative units of one message: no code, headings or bare points of lists."""
    said = [unit for unit in units.of_source(speech.headless(source)) if not unit.code]
    if source.role != "assistant" or source.speaker not in speech.ROLE_LABELS or len(said) < 3:
        return said
    # An answer with many points has many mere introductions and headings: "Key points:", "SEO".
    return [unit for unit in said if not _is_bare(unit.text)] or said


def _is_bare(text: str) -> bool:
    """Return whether a piece of an answer only introduces the next, or is a bare list point."""
    bare = text.strip(" *_").lstrip("-*•+0123456789.) ")
    words = bare.split()
    if bare.endswith(":"):
        return len(words) <= _LEAD
    sentence = bare.endswith((".", "!", "?", "…", ";", '"'))
    figures = any(sign.isdigit() for sign in bare)
    return len(words) <= _POINT and not sentence and not figures


def _fitted(
    *,
    summary: str,
    things: Sequence[Thing],
    opened: Sequence[OpenItem],
    lines: Sequence[trivector.AnswerStrategy],
    max_tokens: int,
    count: Callable[[str], int],
) -> trivector.Answer:
    """Build the answer; to make it fit, drop places of entities first, then items of all kinds."""
    share, most = 1.0, trivector.MOST_MENTIONS
    for _ in range(_TRIES):
        # Names are many and mostly small; open items and decisions are dropped last.
        softer = share**0.5
        kept = things[: int(len(things) * share)]
        answer = trivector.Answer(
            summary=summary,
            features=_features(kept),
            entities=tuple(_entity(thing, most) for thing in kept),
            relations=(),
            deltas=tuple(
                trivector.AnswerDelta(
                    kind=item.kind,
                    text=item.text[: trivector.MOST_IN_LINE],
                    open=True,
                    messages=item.messages[: trivector.MOST_MESSAGES],
                )
                for item in opened[: round(len(opened) * softer)]
            ),
            strategy=tuple(lines[len(lines) - round(len(lines) * softer) :]),
        )
        tokens = count(write(answer))
        if tokens <= max_tokens:
            return answer
        if share == 1.0 and most > _FEWEST_MENTIONS:
            most = max(_FEWEST_MENTIONS, most // 2)
            continue
        share *= min(0.9, 0.95 * max_tokens / tokens)
        most = max(_FEWEST_MENTIONS, int(trivector.MOST_MENTIONS * share))
    bare = trivector.Answer(summary=summary)
    return bare if count(write(bare)) <= max_tokens else trivector.Answer(summary="")


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
    said = min(1.0, 0.15 * len(thing.own) + 0.05 * len(thing.messages))
    return trivector.AnswerEntity(
        type=thing.type,
        name=name,
        aliases=tuple(aliases[: trivector.MOST_ALIASES]),
        description=_short(about),
        confidence=round(min(0.99, thing.sure * (0.8 + 0.2 * said)), 2),
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
