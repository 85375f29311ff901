"""Decides which units a summary of a given size keeps.

The result never exceeds the budget as the given counter counts it, and the same units give the same
result in every process. This module neither splits text (``units``) nor knows what a word is worth
(``lexicon``).

The method is weighted term coverage with diminishing returns, a submodular objective, maximised by
a cost-scaled lazy greedy (Lin and Bilmes 2010, Leskovec et al. 2007). A set of units is worth, for
each term that c of them hold, ``w * (1 + r + ... + r ** (c - 1))``, so a second mention adds little
and a third almost nothing; each step takes the unit that adds most per token:

    gain(u)  = prior(u) * sum of w(t) * r ** c(t) / (cost(u) + 3) ** s
    w(t)     = kind(t) * f ** 0.25 * ln(1 + n / f)      n units, f of which hold t
    prior(u) = other_role * (1 + lead, first unit of its message) * (code, a code digest)
               and by the place in an answer (``_priors``)
    cost(u)  = its tokens, and those of its speaker and date where they are not shown yet

A unit that leans on others (``_company``) is weighed, paid for and taken together with them. The
user and the assistant each have a part of their fair share of the budget (``_floors``). Calls of
tools and what these return are bulk, which gets what the rest leaves; only lines that report a
failure compete with what was said.

The parameters are flat near their defaults. They were chosen on LoCoMo and BEAM development chats;
``benchmarks/survival.py`` measures what they keep.
"""

from __future__ import annotations

import heapq
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple, TypeAlias

from hiermem.text.policy import (
    ANCHOR,
    DECISION,
    PLAIN,
    has_word,
    is_back_channel,
    is_closing,
    is_heading,
    is_item,
    leans,
    terms_of,
)
from hiermem.text.slices import tells_of_failure
from hiermem.text.units import continues, render
from hiermem.types import Role, Unit


class UnitNote(NamedTuple):
    """What was read in a unit's text: its terms, those among them of a strong kind, its tokens."""

    terms: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    anchors: tuple[str, ...] = ()
    tokens: int = 0


#: What was read in units, by their texts.
Notes: TypeAlias = MutableMapping[str, UnitNote]

_NOTHING = UnitNote()

#: Added to a unit's cost before it is scaled, so that short units do not win by shortness alone.
_COST_OFFSET = 3
#: A room of fewer tokens than this holds nothing useful.
_CRUMB = 3
#: Speakers' labels that are not names.
_ROLE_LABELS = {"user", "assistant", "system", "tool", "summary"}
#: How many sentences further back come with a sentence that leans on the one before it.
_CHAIN = 2
#: The factor for a unit that can represent its group only in part: a whole sentence reads better.
_PART = 0.5
#: The kind of a term that is worth nothing.
_NO_KIND = 0
#: How often the tokens that rendering saved are spent again.
_REFILLS = 2
#: The factor for an item of a list in an answer.
_ITEM = 0.75
#: The roles that have such a floor: what tools return is bulk.
_SPEAKERS: tuple[Role, ...] = ("user", "assistant")
#: How a call begins in the text of its message.
_CALL = re.compile(r"[\w.:-]{1,64}\([{\[]")


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of a selection.

    ``anchor`` and ``decision`` are the weights of such terms, where a plain word weighs 1: 4 suits
    assistants and chats, 1 or 2 the gist of long meetings. ``other_role`` scales units of any
    speaker but the user: a lower value favours the user, 1.0 treats all alike. With ``questions``,
    a first sentence that leans on another speaker's question comes with it, and no other that leans
    leads its message: where few messages have a line, a reader cannot tell what it is about.
    ``floor`` is the part of the user's and of the assistant's fair share that no other may take.
    """

    anchor: float = 4.0
    decision: float = 2.0
    other_role: float = 0.5
    lead: float = 0.2
    code: float = 0.7
    repeat: float = 0.3
    cost_power: float = 0.9
    floor: float = 0.25
    questions: bool = False


@dataclass(frozen=True, slots=True)
class Selection:
    """A text, its count of tokens, and the units of which it is the rendering, () if it is none."""

    units: tuple[Unit, ...] = ()
    text: str = ""
    tokens: int = 0


def select(
    units: Sequence[Unit],
    budget: int,
    count: Callable[[str], int],
    *,
    weights: Weights = Weights(),
    standing: Iterable[int] = (),
    groups: Sequence[Sequence[int]] = (),
    piece: int = 40,
    known: Sequence[Unit] = (),
    notes: Notes | None = None,
) -> Selection:
    """Keep the units worth most within ``budget`` tokens, in their given order.

    ``standing`` are positions in ``units`` that are taken first, as far as they fit. ``groups`` are
    lists of positions, oldest first. Before the rest is pooled, each group keeps its best unit, cut
    to ``piece`` tokens with its date and speaker, for as long as the budget lasts. ``known`` are
    units that the reader is shown anyway: their terms count as said, and they are not selected.
    Where nothing can be scored or nothing fits, the head of the first unit stands for all.
    ``notes`` are what earlier selections with the same counter read in units, to which this one
    adds. ``count(text) <= budget`` holds for every counter. The method assumes that separate parts
    count no less than the joined text; where that fails, the units taken last are left out again.
    """
    if budget <= 0 or not units:
        return Selection()
    pool = _Pool(units, budget, count, weights, known=known, notes={} if notes is None else notes)
    pool.stand(standing)
    for group in groups:
        pool.represent(group, piece)
    pool.fill(bulk=False)
    pool.fill()
    return pool.result()


class _Pool:
    """The state of one selection: the present worth and cost of every unit, and the taken units."""

    def __init__(
        self,
        units: Sequence[Unit],
        budget: int,
        count: Callable[[str], int],
        weights: Weights,
        *,
        known: Sequence[Unit],
        notes: Notes,
    ) -> None:
        self._units = list(units)
        self._budget = budget
        self._left = budget
        self._count = count
        self._notes = notes
        self._weights = weights
        self._message = _message_numbers(units)
        self._company = _company(units, self._message, questions=weights.questions)
        self._terms: list[tuple[int, ...]] = []
        self._tokens: list[int] = []
        self._worth: list[float] = []
        self._score(known)
        self._prior = _priors(units, self._message, weights, self._company)
        self._bulk = {at for at, unit in enumerate(units) if _is_bulk(unit)}
        self._floors = _floors(units, self._message, weights.floor * budget)
        self._scales: dict[int, float] = {}
        self._added: dict[int, list[tuple[int, list[int]]]] = {}
        for place in {place for places in self._company.values() for place in places}:
            if not self._terms[place]:
                self._tokens[place] = count(" " + units[place].text)
        self._labels: dict[str, int] = {}
        self._days: dict[str, int] = {"": 0}
        self._seen_messages: set[int] = set()
        self._seen_days: set[str] = {""}
        self._taken: dict[int, Unit] = {}

    def _score(self, known: Sequence[Unit]) -> None:
        """Read the terms of every unit and weigh them over all units, the known ones included.

        Exact repeats by one speaker count once, back-channel does not count.
        """
        notes = self._notes
        found: list[UnitNote] = []
        said: set[tuple[str, str]] = set()
        names = _own_names(self._units)
        for unit in (*known, *self._units):
            text = unit.text
            key = unit.speaker, text.casefold()
            idle = key in said or is_back_channel(text, names)
            said.add(key)
            found.append(_NOTHING if idle else notes.get(text) or self._read(text))
        frequency = Counter(chain.from_iterable([note.terms for note in found]))
        kinds = dict.fromkeys(frequency, PLAIN)
        decisions = chain.from_iterable([note.decisions for note in found])
        kinds |= dict.fromkeys(decisions, DECISION)
        anchors = chain.from_iterable([note.anchors for note in found])
        kinds |= dict.fromkeys(anchors, ANCHOR)
        kinds |= dict.fromkeys(names & kinds.keys(), _NO_KIND)
        by_kind = {
            _NO_KIND: 0.0,
            PLAIN: 1.0,
            DECISION: self._weights.decision,
            ANCHOR: self._weights.anchor,
        }
        number = {term: place for place, term in enumerate(frequency)}
        total = len(found)
        # Few pairs of a kind and a frequency are met, each of them often.
        worth = {
            (kind, f): by_kind[kind] * math.sqrt(math.sqrt(f)) * math.log(1 + total / f)
            for kind, f in set(zip(kinds.values(), frequency.values(), strict=True))
        }
        self._worth = [worth[pair] for pair in zip(kinds.values(), frequency.values(), strict=True)]
        for term in (term for note in found[: len(known)] for term in note.terms):
            self._worth[number[term]] *= self._weights.repeat
        own = found[len(known) :]
        self._terms = [tuple(map(number.__getitem__, note.terms)) for note in own]
        self._tokens = [note.tokens for note in own]

    def _read(self, text: str) -> UnitNote:
        """Read the text of a unit, and note what was read."""
        terms = terms_of(text)
        note = self._notes[text] = UnitNote(
            tuple(terms),
            tuple([term for term, kind in terms.items() if kind == DECISION]),
            tuple([term for term, kind in terms.items() if kind == ANCHOR]),
            self._count(" " + text),
        )
        return note

    # -- the present cost and worth of a unit

    def _heading_cost(self, at: int) -> int:
        """Return the tokens of the speaker and the date of a unit, where they are not shown yet."""
        unit, cost = self._units[at], 0
        if self._message[at] not in self._seen_messages and unit.speaker:
            if unit.speaker not in self._labels:
                self._labels[unit.speaker] = self._count(f"\n{unit.speaker}:")
            cost = self._labels[unit.speaker]
        if unit.date not in self._seen_days:
            if unit.date not in self._days:
                self._days[unit.date] = self._count(f"[{unit.date}]\n")
            cost += self._days[unit.date]
        return cost

    def _missing(self, at: int) -> list[int]:
        """Return the units that must come with a unit and are not taken yet."""
        return [place for place in self._company.get(at, ()) if place not in self._taken]

    def _cost(self, at: int) -> int:
        """Return the tokens that showing a unit adds, with the units that come with it."""
        cost = self._tokens[at] + self._heading_cost(at)
        if at in self._company and (missing := self._missing(at)):
            shown = {self._message[at]}
            for place in missing:
                cost += self._tokens[place]
                if self._message[place] not in shown:
                    shown.add(self._message[place])
                    cost += self._heading_cost(place)
        return cost

    def _gain(self, at: int, cost: int) -> float:
        """Return the worth per token that a unit of ``cost`` adds now."""
        worth = self._worth.__getitem__
        value = sum(map(worth, self._terms[at])) * self._prior[at]
        if at in self._company:
            for place, added in self._added_terms(at):
                if place not in self._taken:
                    value += sum(map(worth, added)) * self._prior[place]
        scale = self._scales.get(cost)
        if scale is None:
            scale = math.pow(cost + _COST_OFFSET, self._weights.cost_power)
            self._scales[cost] = scale
        return value / scale

    def _added_terms(self, at: int) -> list[tuple[int, list[int]]]:
        """Return the units that come with a unit, each with the terms that the unit has not."""
        found = self._added.get(at)
        if found is None:
            own = set(self._terms[at])
            found = self._added[at] = [
                (place, sorted(set(self._terms[place]) - own)) for place in self._company[at]
            ]
        return found

    def _take(self, at: int, cost: int, *, cut: Unit | None = None) -> None:
        """Show a unit (or ``cut``, a part of it); from now on its terms are worth less."""
        self._left -= cost
        # Its company is taken first, so that leaving out the last units leaves no unit alone.
        for place in [at] if cut else [*self._missing(at), at]:
            unit = cut or self._units[place]
            self._taken.setdefault(place, unit)
            if unit.role in self._floors:
                self._floors[unit.role] -= self._tokens[place]
            if unit.speaker:
                self._seen_messages.add(self._message[place])
            self._seen_days.add(unit.date)
            for term in self._terms[place]:
                self._worth[term] *= self._weights.repeat

    # -- the steps

    def stand(self, places: Iterable[int]) -> None:
        """Take these units as far as they fit."""
        for at in places:
            if at not in self._taken and (cost := self._cost(at)) <= self._left:
                self._take(at, cost)

    def represent(self, group: Sequence[int], piece: int) -> None:
        """Take the best unit of a group, cut to ``piece`` tokens where none is shorter.

        A group whose units all say nothing is represented by its first unit.
        """
        room = min(piece, self._left)
        if not group or room <= 0 or any(at in self._taken for at in group):
            return
        group = [at for at in group if self._terms[at] and at not in self._bulk] or group
        best, best_gain, best_cost = group[0], 0.0, piece + 1
        for at in group:
            if not self._terms[at]:
                continue
            cost = self._cost(at)
            gain = self._gain(at, cost)
            if cost > room:  # only the fitting part has worth
                gain *= _PART * room / cost
            if gain > best_gain:
                best, best_gain, best_cost = at, gain, cost
        if self._terms[best] and best_cost <= room:
            self._take(best, best_cost)
        else:
            self._take_head(best, room)

    def _take_head(self, at: int, room: int) -> None:
        """Show as much of a unit as fits ``room`` tokens.

        If its speaker's name and its date would fill it, it stands without the name, then the date.
        """
        unit = self._units[at]
        heading = self._heading_cost(at)
        if heading > room // 2:
            heading = 0 if unit.date in self._seen_days else self._days[unit.date]
            unit = replace(unit, speaker="")
        if heading > room // 2:
            unit, heading = replace(unit, date=""), 0
        # The first token of a line may merge differently than after a space: both must fit.
        text = _head(unit.text, room - heading, lambda text: self._count("\n" + text))
        if text:
            cost = heading + self._count("\n" + text)
            self._take(at, min(cost, room), cut=replace(unit, text=text))

    def fill(self, *, bulk: bool = True) -> None:
        """Spend the rest of the budget on the units that add most per token, until nothing fits."""
        if self._left <= _CRUMB:
            return
        passed = self._taken if bulk else self._taken.keys() | self._bulk
        waiting = [at for at, terms in enumerate(self._terms) if terms and at not in passed]
        if min((self._tokens[at] for at in waiting), default=0) > self._left:
            return
        queue = self._bounds(waiting)
        heapq.heapify(queue)
        version = 0
        while queue and self._left > _CRUMB:
            bound, at, seen = heapq.heappop(queue)
            if at in self._taken or (cost := self._cost(at)) > self._left - self._owed(at):
                continue
            # A bound of this version is the gain itself.
            gain = self._gain(at, cost) if seen != version else -bound
            if gain <= 0:
                continue
            if seen != version and queue and -gain > queue[0][0]:
                heapq.heappush(queue, (-gain, at, version))
                continue
            self._take(at, cost)
            version += 1

    def _owed(self, at: int) -> int:
        """Return the tokens that a unit must leave for roles that are below their floors."""
        own = self._units[at].role
        return sum(max(0, floor) for role, floor in self._floors.items() if role != own)

    def _bounds(self, waiting: Sequence[int]) -> list[tuple[float, int, int]]:
        """Return the entries of units in the queue: the gain that each has now, its position, 0.

        The units of one message have one heading. A unit that comes alone and is too long now stays
        so: what showing another unit takes off its cost, that other unit has paid for.
        """
        headings: dict[int, int] = {}
        found: list[tuple[float, int, int]] = []
        for at in waiting:
            if at in self._company:
                cost = self._cost(at)
            else:
                number = self._message[at]
                if number not in headings:
                    headings[number] = self._heading_cost(at)
                cost = self._tokens[at] + headings[number]
                if cost > self._left:
                    continue
            found.append((-self._gain(at, cost), at, 0))
        return found

    def measured(self, number: int | None = None) -> Selection:
        """Return the first ``number`` units taken (all for None) as they would be rendered."""
        places = sorted(list(self._taken)[:number])
        units = tuple(self._taken[place] for place in places)
        text = render(units)
        return Selection(units, text, self._count(text))

    def result(self) -> Selection:
        """Return the taken units, after spending the tokens that joining the parts has saved.

        Where the counter counts the parts lower than the whole, the units taken last are left out.
        """
        best = self.measured()
        for _ in range(_REFILLS):
            taken = len(self._taken)
            self._floors.clear()
            self._left = self._budget - best.tokens
            self.fill()
            if len(self._taken) == taken:
                break
            best = self.measured()
        if best.tokens > self._budget:
            fits, over = 0, len(self._taken)
            while over - fits > 1:
                middle = (fits + over) // 2
                fewer = self.measured(middle)
                if fewer.tokens > self._budget:
                    over = middle
                else:
                    fits, best = middle, fewer
        return best if best.units and best.tokens <= self._budget else self._last_resort()

    def _last_resort(self) -> Selection:
        """Return a part of the best unit with its headings, or of the first unit without them."""
        self._taken.clear()
        self._seen_messages.clear()
        self._seen_days = {""}
        self._left = self._budget
        self.represent(range(len(self._units)), self._budget)
        best = self.measured()
        if best.units and best.tokens <= self._budget:
            return best
        unit = self._units[0]
        text = _head(unit.text, self._budget, self._count)
        if not text:
            return Selection()
        return Selection((replace(unit, text=text, speaker="", date=""),), text, self._count(text))


def _priors(
    units: Sequence[Unit],
    message: Sequence[int],
    weights: Weights,
    company: Mapping[int, Sequence[int]],
) -> list[float]:
    """Return each unit's worth by its speaker, its position and its form.

    An answer is represented by how it begins and ends rather than by the lists in its middle: a
    heading there comes only with what it announces. The offers of help at its end are worth
    nothing, and neither is a formula or a mark without the sentence that it belongs to.
    """
    priors: list[float] = []
    for at, unit in enumerate(units):
        answer = unit.role == "assistant"
        prior = 1.0 if unit.role == "user" else weights.other_role
        if (answer and is_closing(unit.text)) or not (unit.ordinal == 0 or has_word(unit.text)):
            prior = 0.0
        elif unit.ordinal == 0:
            if at in company or not (weights.questions and leans(unit.text)):
                prior *= 1 + weights.lead
        elif answer and is_heading(unit.text):
            prior = 0.0
        elif answer and is_item(unit.text):
            prior *= _ITEM
        elif answer and (at + 1 == len(units) or message[at + 1] != message[at]):
            prior *= 1 + weights.lead
        priors.append(prior * weights.code if unit.code else prior)
    return priors


def _is_bulk(unit: Unit) -> bool:
    """Return whether a unit is a call, or a line of its result that reports no failure."""
    if unit.role == "tool":
        return not tells_of_failure(unit.text)
    return unit.role == "assistant" and _CALL.match(unit.text) is not None


def _floors(units: Sequence[Unit], message: Sequence[int], room: float) -> dict[str, int]:
    """Return, by role, the tokens that the other roles leave free for it, if it has the units.

    A fair share is one by messages, because one answer is as long as many questions.
    """
    said = Counter(role for _, role in {(message[at], unit.role) for at, unit in enumerate(units)})
    total = sum(said.values())
    return {role: int(room * said[role] / total) for role in _SPEAKERS if said[role]}


def _message_numbers(units: Iterable[Unit]) -> list[int]:
    """Return for each unit the running number of the message that it comes from."""
    numbers: list[int] = []
    before = None
    for unit in units:
        number = numbers[-1] if numbers else 0
        if before is not None and not continues(before, unit):
            number += 1
        numbers.append(number)
        before = unit
    return numbers


def _company(
    units: Sequence[Unit], message: Sequence[int], *, questions: bool
) -> dict[int, tuple[int, ...]]:
    """Return, by a unit's position, the units without which the unit says too little.

    A heading comes with the next unit of its message, an item of a list with the heading of the
    list, a sentence that leans on the one before with that sentence, and with ``questions`` an
    answer that leans on a question with that question. Only members of ``units`` can come; a unit
    without such a member stands by itself.
    """
    company: dict[int, tuple[int, ...]] = {}
    heading: int | None = None
    for at, unit in enumerate(units):
        inside = at > 0 and message[at] == message[at - 1]
        if not inside:
            heading = None
        if unit.code:
            continue
        if is_heading(unit.text):
            heading = at
            if at + 1 < len(units) and message[at + 1] == message[at]:
                company[at] = (at + 1,)
        elif is_item(unit.text):
            if heading is not None:
                company[at] = (heading,)
        elif inside and leans(unit.text):
            before = company.get(at - 1, ()) if not is_heading(units[at - 1].text) else ()
            company[at] = (*before[-_CHAIN:], at - 1)
        elif questions and _answers(units, at) and leans(unit.text):
            company[at] = (at - 1,)
    return company


def _answers(units: Sequence[Unit], at: int) -> bool:
    """Return whether a unit begins the message after one that ends in a question."""
    unit = units[at]
    if at == 0 or unit.ordinal or unit.index is None:
        return False
    return units[at - 1].index == unit.index - 1 and units[at - 1].text.endswith("?")


def _own_names(units: Iterable[Unit]) -> frozenset[str]:
    """Return the speakers' names and their starts ("Mel" for Melanie), which only address."""
    names = {name for unit in units for name in unit.speaker.lower().split()} - _ROLE_LABELS
    return frozenset(name[:end] for name in names for end in range(3, len(name) + 1))


def _head(text: str, room: int, count: Callable[[str], int]) -> str:
    """Return the longest start of ``text`` within ``room`` tokens, marked as cut."""
    if count(text) <= room:
        return text
    for mark in ("…", ""):
        low, high = 0, len(text)
        while low < high:
            middle = (low + high + 1) // 2
            if count(text[:middle].rstrip() + mark) <= room:
                low = middle
            else:
                high = middle - 1
        while low and _joins(text[low - 1], text[low : low + 1]):
            low -= 1
        space = text.rfind(" ", low * 2 // 3, low)
        head = text[: space if space > 0 else low].rstrip(" \n,;:-")
        if head and count(head + mark) <= room:
            return head + mark
    return ""


def _joins(before: str, after: str) -> bool:
    """Return whether two code points belong to one visible character."""
    return before == "\u200d" or (
        after != "" and (after in "\u200d\ufe0e\ufe0f" or unicodedata.combining(after) != 0)
    )
