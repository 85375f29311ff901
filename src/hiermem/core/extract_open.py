"""Decides what a conversation leaves open, and what it decides, sentence by sentence.

The one rule: an item is one clause that somebody said, word for word but for what is cut off at its
ends, so it can be checked against the messages that it names. A question counts as open only where
nobody answered it, a task only where nobody reported it done. Advice that an assistant gives is
nobody's task and no decision. The signs (``extract_signs``) are English; in other languages only
questions, marks such as TODO and ticked lists are found.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from hiermem.core import extract_signs as signs
from hiermem.core.extract_text import Said
from hiermem.core.extract_words import FUNCTION_WORDS, GENERIC
from hiermem.core.lexicon import is_back_channel, stem
from hiermem.protocols import SourceText
from hiermem.trivector import DeltaKind, StrategyKind

__all__ = ["Line", "Open", "open_ends", "strategy"]

_CAP: Final = 240
#: How many of the messages after it may answer a question.
_REACH: Final = 4


@dataclass(frozen=True, slots=True)
class Open:
    """One open end, or a statement that settles one (``open`` False)."""

    kind: DeltaKind
    text: str
    messages: tuple[int, ...]
    words: frozenset[str]
    open: bool = True


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that bears on where the work is going."""

    kind: StrategyKind
    text: str
    messages: tuple[int, ...]


def _stems(text: str) -> frozenset[str]:
    found = re.findall(r"\w[\w./-]*\w|\w", text.lower())
    return frozenset(stem(word) for word in found if len(word) > 2 and word not in FUNCTION_WORDS)


def clause(text: str, at: int = 0) -> str:
    """Give the statement around character ``at``, without a request for help behind it."""
    aside = signs.ASIDE.search(text, max(at + 8, 0))
    end = aside.start() if aside and aside.start() - at >= 24 else len(text)
    start = 0
    if end - start > _CAP:
        starts = [m.end() for m in signs.CLAUSE.finditer(text, 0, max(at, 0) + 1) if m.end() <= at]
        start = starts[-1] if starts else 0
    if end - start > _CAP:
        ends = [m.start() for m in signs.CLAUSE.finditer(text, at + 40, min(end, start + _CAP))]
        end = ends[-1] if ends else text.rfind(" ", start, start + _CAP)
    cut = text[start:end].strip(" ,;:-")
    return cut[:1].upper() + cut[1:]


def open_ends(said: Sequence[Said], sources: Sequence[SourceText]) -> list[Open]:
    """Give what is open at the end, and the reports of things done that settled nothing here."""
    found = [*_marks(sources), *_questions(said), *_statements(said)]
    found.sort(key=lambda item: item.messages[0])
    return _settle(found)


def _marks(sources: Sequence[SourceText]) -> Iterator[Open]:
    """Yield marks that mean a task in any language: TODO, FIXME, boxes to tick."""
    for position, source in enumerate(sources):
        if source.role == "system":
            continue
        index = position if source.index is None else source.index
        for match in signs.MARK.finditer(source.text):
            text = match["rest"].strip(" */#->")
            yield Open("task", text, (index,), _stems(text))
        for match in signs.BOX.finditer(source.text):
            text = match["rest"].strip()
            yield Open("task", text, (index,), _stems(text), open=match["tick"] == " ")


def _questions(said: Sequence[Said]) -> Iterator[Open]:
    """Yield the questions that nobody answered."""
    for at, one in enumerate(said):
        if not one.text.rstrip("\"'”’)] *").endswith(("?", "？")):  # noqa: RUF001
            continue
        if not one.own or one.agent or signs.PHATIC.search(one.text):
            continue
        asked = _stems(one.text) - _stems(one.speaker)
        telling = {word for word in asked if word not in GENERIC}
        if len(telling) < 2:
            continue
        verdict = _answered(said, at)
        if verdict is None:
            continue
        text = one.text[-_CAP:] if len(one.text) > _CAP else one.text
        yield Open("question", text, (one.index, *verdict), asked)


def _answered(said: Sequence[Said], at: int) -> tuple[int, ...] | None:
    """Give None where a question was answered, else the messages that put it off."""
    one = said[at]
    reply: list[Said] = []
    for other in said[at + 1 : at + 60]:
        if other.index == one.index:
            continue
        if other.speaker == one.speaker and not reply:
            return ()
        if other.index > one.index + 2 * _REACH:
            break
        if reply and other.index != reply[0].index:
            break
        reply.append(other)
    if not reply:
        return ()
    if reply[0].role == "assistant" and not reply[0].named:
        # An assistant answers what it is asked; where it does not know, it says so at once.
        doubtful = signs.UNSURE.search(reply[0].text) and len(reply) <= 2
        return (reply[0].index,) if doubtful else None
    if any(signs.UNSURE.search(each.text) for each in reply[:3]):
        return (reply[0].index,)
    return None


def _statements(said: Sequence[Said]) -> Iterator[Open]:
    """Yield tasks, promises and troubles that people state, and what is reported as done."""
    helped = _helped(said)
    had: set[tuple[DeltaKind, int]] = set()
    for item, doubt in _stated(said):
        # A message states one thing of a kind; what follows goes on about it.
        at = item.messages[0]
        if item.open and ((item.kind, at) in had or (doubt and at in helped)):
            continue
        had.add((item.kind, at))
        yield item


def _helped(said: Sequence[Said]) -> set[int]:
    """Give the messages that an assistant without a name answers: a doubt in them is settled."""
    order = list(dict.fromkeys((one.index, one.speaker, one.role, one.named) for one in said))
    return {
        before[0]
        for before, after in itertools.pairwise(order)
        if after[2] == "assistant" and not after[3] and before[1] != after[1]
    }


def _stated(said: Sequence[Said]) -> Iterator[tuple[Open, bool]]:
    """Yield what people state, with whether it is only a doubt."""
    for one in said:
        text = one.text
        question = text.rstrip("\"' *)").endswith("?")
        if (
            (done := signs.DONE.search(text))
            and (one.own or signs.FIXED.search(text))
            and not signs.SUPPOSED.search(text[max(0, done.start() - 30) : done.start() + 12])
        ):
            kept = clause(text, done.start())
            # What was done stands right behind the verb; the rest of a long sentence is other news.
            told = _stems(text[done.start() : done.end() + 70])
            yield Open("task", kept, (one.index,), told, open=False), False
            continue
        if not one.own:
            continue
        if (trouble := signs.TROUBLE.search(text)) and not signs.SUPPOSED.search(
            text[: trouble.start()]
        ):
            kept = clause(text, trouble.start())
            doubt = signs.DOUBT.search(trouble.group()) is not None
            if len(_stems(kept)) >= 4:
                yield Open("unresolved", kept, (one.index,), _stems(kept)), doubt
            continue
        if one.agent:
            continue
        if question and (signs.ASKING.match(text) or not signs.ASIDE.search(text)):
            continue
        task = signs.TASK.search(text)
        promise = signs.PROMISE.search(text)
        if task and not signs.NO_TASK.search(text[task.end() : task.end() + 20]):
            kept = clause(text, task.start())
            if len(_stems(kept)) >= 3:
                yield Open("task", kept, (one.index,), _stems(kept)), False
        elif promise and not signs.NO_PROMISE.match(text[promise.end() :]):
            kept = clause(text, promise.start())
            if len(_stems(kept)) >= 3:
                yield Open("promise", kept, (one.index,), _stems(kept)), False


def _settle(found: Sequence[Open]) -> list[Open]:
    """Close what a later statement reports as done; keep reports that closed nothing."""
    result: list[Open | None] = list(found)
    holders: dict[str, list[int]] = {}
    for at, item in enumerate(found):
        if item.open:
            for word in item.words:
                holders.setdefault(word, []).append(at)
            continue
        shared: dict[int, int] = {}
        for word in item.words:
            places = holders.get(word, ())
            for place in places[-40:]:
                shared[place] = shared.get(place, 0) + 1
        settled = False
        for place, number in shared.items():
            held = result[place]
            least = max(2, 0.5 * min(len(found[place].words), len(item.words)))
            if held is not None and held.open and number >= least:
                messages = (*held.messages, *item.messages)
                result[place] = replace(held, open=False, messages=messages)
                settled = True
        if settled:
            result[at] = None
    return _once([item for item in result if item is not None])


def _once(items: Sequence[Open]) -> list[Open]:
    """Leave out what says nearly the same as an earlier item of its kind."""
    kept: list[Open] = []
    for item in items:
        near = any(
            item.kind == other.kind
            and len(item.words & other.words) >= 0.75 * max(1, len(item.words))
            for other in kept[-40:]
        )
        if not near:
            kept.append(item)
    return kept


def strategy(said: Sequence[Said]) -> list[Line]:
    """Give the decisions, constraints, preferences, milestones and effects that people state."""
    found: list[Line] = []
    seen: list[frozenset[str]] = []
    for one in said:
        read = _direction(one)
        if read is None:
            continue
        kind, at = read
        text = clause(one.text, at)
        stems = _stems(text)
        near = any(len(stems & other) >= 0.75 * max(1, len(stems)) for other in seen[-40:])
        if len(stems) < 3 or near or is_back_channel(text):
            continue
        seen.append(stems)
        found.append(Line(kind, text, (one.index,)))
    return found


def _direction(one: Said) -> tuple[StrategyKind, int] | None:  # noqa: PLR0911 - a row of cases
    """Give what kind of direction a sentence states, and where."""
    text = one.text
    if not one.own or one.agent:
        # What an assistant did itself has an effect; what it advises has none yet.
        fixed = signs.FIXED.search(text)
        effect = fixed and (one.agent or re.search(r"\d", text))
        return ("impact", fixed.start()) if fixed and effect else None
    if text.rstrip("\"' *)").endswith("?") and not signs.ASIDE.search(text):
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
