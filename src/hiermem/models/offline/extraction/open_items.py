"""Decides what a conversation leaves open, and what it reports as done, sentence by sentence.

An item is one clause that somebody said. A question is open only if nobody answered it
(``questions``), a task or a promise only if nobody reported it done. Advice from an assistant is
nobody's task, and an announcement by an assistant is a promise only if it does not carry it out
right away. The patterns (``signs``) are English; in other languages only questions, marks such as
TODO and ticked lists are found.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from hiermem.models.offline.extraction import signs
from hiermem.models.offline.extraction.clause import (
    CAP,
    OpenItem,
    around,
    clause,
    labels,
    stems,
    telling,
)
from hiermem.models.offline.extraction.questions import questions
from hiermem.models.offline.extraction.speech import ROLE_LABELS, Sentence, calls
from hiermem.protocols import SourceText
from hiermem.types.trivector import DeltaKind

#: "Done." refers to a promise or request in at most this many messages before it.
_REACH: Final = 4
#: Of the open items that contain a word, this many of the newest are compared with a report.
_HELD: Final = 40
#: A report refers to an open item if it has this many of its words, and this share of them; more
#: for unresolved problems, because much can be done with the same things.
_LEAST, _SHARE, _SHARE_OF_TROUBLE = 2, 0.35, 0.5
#: One significant word of a report is enough for an open item with at most this many.
_FEW: Final = 3
_Read: TypeAlias = tuple[OpenItem, bool]
_DOING: Final = stems(
    "done did fixed finished completed shipped merged deployed sent closed resolved sorted tested"
    " ticked uploaded delivered submitted signed booked paid built written published renewed ready"
    " live place now all today already finally closing pushing sending wrote made here back"
)


def open_ends(said: Sequence[Sentence], sources: Sequence[SourceText]) -> list[OpenItem]:
    """Return what is open at the end, what was settled, and reports that settled nothing here."""
    found = [*_marks(sources), *questions(said), *_listed(said), *_statements(said, sources)]
    found.sort(key=lambda item: item.messages[0])
    return _settle(found)


def _marks(sources: Sequence[SourceText]) -> Iterator[OpenItem]:
    """Yield marks that mean a task in any language: TODO, FIXME, boxes to tick.

    Marks in a program's output are other people's tasks. An assistant that only advises puts them
    into its examples; its list of boxes is a plan if one is ticked, or has a date.
    """
    agent = any(source.role == "tool" for source in sources)
    for position, source in enumerate(sources):
        if source.role in ("system", "tool"):
            continue
        index = position if source.index is None else source.index
        advice = source.role == "assistant" and source.speaker in ROLE_LABELS and not agent
        for match in () if advice else signs.MARK.finditer(source.text):
            text = match["rest"].strip(" */#->")
            yield OpenItem("task", text, (index,), stems(text), labels=labels(text))
        boxes = list(signs.BOX.finditer(source.text))
        ticked = any(match["tick"] != " " for match in boxes)
        for match in boxes:
            text = match["rest"].strip()
            if advice and not ticked and not signs.DAY.search(text):
                continue
            done = match["tick"] != " "
            yield OpenItem(
                "task", text, (index,), stems(text), not done, labels=labels(text), report=done
            )


def _listed(said: Sequence[Sentence]) -> Iterator[OpenItem]:
    """Yield the points that people put on a list, or call open."""
    heading, within = "", -1
    for at, one in enumerate(said):
        text = one.text
        if one.index == within and (heading or signs.NUMBERED.match(text)):
            if not (signs.SETTLES.search(text) or signs.ENDED.search(text)):
                yield _opened("unresolved", f"{heading} {text}"[:CAP].strip(), one)
            heading = ""
            continue
        sign = signs.LISTED.search(text) if one.own and not one.asks else None
        if sign is None:
            continue
        bare = len(stems(text) - stems(sign.group())) < 2
        if sign.group().lower().startswith(("remaining", "still open")):
            heading, within = text if bare else "", one.index
        if signs.CLOSES.search(text):
            continue
        before = said[at - 1] if at and said[at - 1].index == one.index else None
        if before is not None and signs.MEANS_BEFORE.match(text):
            text = f"{before.text} {text}"
            text = text if len(text) <= CAP else text[-CAP:].partition(" ")[2]
        elif not bare:
            text = clause(text, sign.start())
        else:
            continue
        if len(stems(text) - stems(sign.group())) >= 2:
            yield _opened("unresolved", text, one)


def _statements(said: Sequence[Sentence], sources: Sequence[SourceText]) -> Iterator[OpenItem]:
    """Yield tasks, promises and problems that people state, and what is reported as done."""
    helped = _helped(said)
    acting = calls(sources)
    had: set[tuple[DeltaKind, int]] = set()
    for one in said:
        # The first match counts: a report of success may well mention a failure.
        read = itertools.chain(
            _reports(one), _troubles(one), _duties(one, acting), _slight_reports(one)
        )
        found = next(read, None)
        if found is None:
            continue
        item, doubt = found
        # A message states one item of a kind; further sentences elaborate on it.
        at = item.messages[0]
        if not item.open:
            yield item
        elif (item.kind, at) not in had and not (doubt and at in helped):
            had.add((item.kind, at))
            yield item


def _helped(said: Sequence[Sentence]) -> set[int]:
    """Return the messages that an assistant without a name answers: a doubt in them is settled."""
    order = list(dict.fromkeys((one.index, one.speaker, one.role, one.named) for one in said))
    return {
        before[0]
        for before, after in itertools.pairwise(order)
        if after[2] == "assistant" and not after[3] and before[1] != after[1]
    }


def _reports(one: Sentence) -> Iterator[_Read]:
    """Yield what a sentence reports as done."""
    text = one.text
    if one.own and signs.BARE_DONE.match(text):
        yield _report(one, text, "", slight=True), False
    done = signs.DONE.search(text)
    if (
        done
        and (one.own or signs.FIXED.search(text))
        and not signs.SUPPOSED.search(text[max(0, done.start() - 30) : done.start() + 12])
    ):
        reported = around(text, done.start(), done.end(), before=not done["by"])
        yield _report(one, clause(text, done.start()), reported, slight=False), False


def _slight_reports(one: Sentence) -> Iterator[_Read]:
    """Yield what may report that something is done, if something similar is open."""
    text = one.text
    done = signs.SETTLES.search(text) if one.own and not one.asks else None
    if done and not signs.NOT_DONE.search(text[max(0, done.start() - 30) : done.end() + 4]):
        before = not (done["by"] or done["first"])
        reported = around(text, done.start(), done.end(), before=before)
        yield _report(one, clause(text, done.start()), reported, slight=True), False


def _report(one: Sentence, kept: str, reported: str, *, slight: bool) -> OpenItem:
    return OpenItem(
        "task",
        kept,
        (one.index,),
        stems(reported),
        open=False,
        labels=labels(reported),
        report=True,
        slight=slight,
        hedged=any(sign.search(one.text) for sign in (signs.TROUBLE, signs.LISTED, signs.TRYING)),
    )


def _troubles(one: Sentence) -> Iterator[_Read]:
    """Yield what does not work, or is not understood, and whether it is only a doubt."""
    text = one.text
    trouble = signs.TROUBLE.search(text) if one.own else None
    if trouble and not signs.SUPPOSED.search(text[: trouble.start()]):
        kept = clause(text, trouble.start())
        doubt = signs.DOUBT.search(trouble.group()) is not None
        if len(stems(kept)) >= 4:
            yield _opened("unresolved", kept, one), doubt


def _duties(one: Sentence, acting: frozenset[int]) -> Iterator[_Read]:
    """Yield what somebody has to do, or says they will; ``acting`` are messages that call tools."""
    text = one.text
    if one.asks and (signs.ASKING.match(text) or not signs.ASIDE.search(text)):
        return
    promise = signs.PROMISE.search(text)
    if promise and signs.NO_PROMISE_BEFORE.search(text[: promise.start()]):
        promise = None
    if not one.own or one.agent:
        if promise and _is_kept_for_later(one, promise.start(), promise.end(), acting):
            yield _opened("promise", clause(text, promise.start()), one), False
        return
    task = signs.TASK.search(text)
    if (
        task
        and not signs.NO_TASK.match(text[task.end() :].lstrip())
        and not signs.NO_TASK_BEFORE.search(text[: task.start()])
    ):
        kept = clause(text, task.start())
        if len(stems(kept)) >= 3:
            yield _opened("task", kept, one), False
    elif promise and not signs.NO_PROMISE.match(text[promise.end() :]):
        kept = clause(text, promise.start())
        vow = signs.VOW.match(text[promise.end() :]) or signs.OFFER.search(text[: promise.start()])
        if len(stems(kept)) >= 3 and not vow:
            yield _opened("promise", kept, one), False


def _is_kept_for_later(one: Sentence, start: int, stop: int, acting: frozenset[int]) -> bool:
    """Return whether an assistant promises something, rather than announce its next step.

    An assistant with tools carries out an announcement in the same message, if that calls a tool;
    one without does so in the lines that follow, unless it names a later time.
    """
    text = one.text
    said = text[start:stop].lower().replace("\u2019", "'")
    rest = text[stop:]
    later = signs.LATER.search(rest)
    if not said.startswith("i") or signs.OFFER.search(text) or len(stems(text)) < 2:
        return False
    if later:
        return True
    return one.agent and one.index not in acting and not signs.NO_PROMISE.match(rest)


def _opened(kind: DeltaKind, text: str, one: Sentence) -> OpenItem:
    return OpenItem(kind, text, (one.index,), stems(text), labels=labels(text))


# ---------------------------------------------------------------------------------------------
# What is settled


def _settle(found: Sequence[OpenItem]) -> list[OpenItem]:
    """Close what a later statement reports as done; keep reports that closed nothing.

    A report closes an item that shares enough of its words, or a number with it; the only open item
    that contains its one significant word; and, if it has no content of its own, the last item that
    was spoken of.
    """
    result: list[OpenItem | None] = list(found)
    holders: dict[str, list[int]] = {}
    for at, item in enumerate(found):
        if item.open:
            for word in (*item.words, *(f"#{label}" for label in item.labels)):
                holders.setdefault(word, []).append(at)
            continue
        if not item.report:
            continue
        closed = _closed_by(item, at, result, holders)
        for place in closed:
            held = result[place]
            if held is not None:
                messages = (*held.messages, *item.messages)
                result[place] = replace(held, open=False, messages=messages)
        if closed or item.slight:
            result[at] = None
    return _once([item for item in result if item is not None])


def _closed_by(
    item: OpenItem, at: int, result: Sequence[OpenItem | None], holders: dict[str, list[int]]
) -> list[int]:
    """Return the places of the open items that a report settles."""

    def live(places: Sequence[int]) -> list[int]:
        recent = ((place, result[place]) for place in places[-_HELD:])
        return [
            place
            for place, held in recent
            if held is not None and held.open and held.messages[-1] < item.messages[0]
        ]

    if item.slight and not item.words and not item.labels:
        return _just_before(item, at, result)
    numbered = [p for label in item.labels for p in live(holders.get(f"#{label}", ()))]
    if numbered:
        return sorted(set(numbered))
    shared: dict[int, int] = {}
    meant = telling(item.words) - _DOING
    for word in item.words:
        for place in live(holders.get(word, ())):
            shared[place] = shared.get(place, 0) + 1
    settled = []
    for place, number in shared.items():
        held = result[place]
        if held is None:
            continue
        duty = held.kind in ("task", "promise")
        share = _SHARE if duty else _SHARE_OF_TROUBLE
        enough = number >= max(_LEAST, share * len(held.words)) and (duty or not item.hedged)
        # An uncertain report has to name the item, not only share words with it.
        if enough and (held.words & meant or not item.slight):
            settled.append(place)
    if settled:
        return settled
    only = live(holders.get(next(iter(meant)), ())) if len(meant) == 1 else []
    held = result[only[0]] if len(only) == 1 else None
    duty = held is not None and held.kind in ("task", "promise")
    return only if held and duty and len(telling(held.words) - _DOING) <= _FEW else []


def _just_before(item: OpenItem, at: int, result: Sequence[OpenItem | None]) -> list[int]:
    """Return the last task or promise right before a report that names none."""
    for place in range(at - 1, max(-1, at - 1 - _HELD), -1):
        held = result[place]
        if held is None or held.messages[0] == item.messages[0]:
            continue
        if held.messages[0] < item.messages[0] - _REACH:
            break
        if held.open and held.kind in ("task", "promise"):
            return [place]
    return []


def _once(items: Sequence[OpenItem]) -> list[OpenItem]:
    """Drop items that nearly repeat an earlier item of their kind or message."""
    kept: list[OpenItem] = []
    for item in items:
        near = any(
            (item.kind == other.kind or item.messages[0] == other.messages[0])
            and len(item.words & other.words) >= 0.75 * max(1, len(item.words))
            for other in kept[-_HELD:]
        )
        if not near:
            kept.append(item)
    return kept
