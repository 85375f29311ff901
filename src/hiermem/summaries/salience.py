"""Decides which units a summary of a given size keeps.

The result never exceeds the budget as the given counter counts it, and the same units give the same
result in every process. Neither the splitting of text (``units``) nor the worth of a word
(``policy``) is decided here.

The method is weighted term coverage with diminishing returns, a submodular objective, maximised by
a cost-scaled lazy greedy (Lin and Bilmes 2010, Leskovec et al. 2007). A set of units is worth, for
each term that c of them hold, ``w * (1 + r + ... + r ** (c - 1))``, so a second mention adds little
and a third almost nothing; each step takes the unit that adds most per token:

    gain(u)  = prior(u) * sum of w(t) * r ** c(t) / (cost(u) + 3) ** s
    w(t)     = kind(t) * f ** 0.25 * ln(1 + n / f)      n units, f of which hold t
    prior(u) = other_role * (1 + lead, first unit of its message) * (code, a code digest)
               and by the place in an answer (``_priors``)
    cost(u)  = its tokens, and those of its speaker and date if they are not shown yet

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
    """A unit's terms, those among them that are decisions or anchors, and its tokens."""

    terms: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    anchors: tuple[str, ...] = ()
    tokens: int = 0


#: The notes of units, by their texts.
Notes: TypeAlias = MutableMapping[str, UnitNote]

_NOTHING = UnitNote()

#: Added to a unit's cost before it is scaled, so that short units do not win by shortness alone.
_COST_OFFSET = 3
#: A room of fewer tokens than this holds nothing useful.
_CRUMB = 3
#: Speakers' labels that are not names.
_ROLE_LABELS = {"user", "assistant", "system", "tool", "summary"}
#: How many earlier sentences come with a sentence that leans on the one before it.
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

    ``standing`` are positions in ``units`` to take first, as far as they fit. ``groups`` are
    lists of positions, oldest first. Before the rest is pooled, each group keeps its best unit, cut
    to ``piece`` tokens with its date and speaker, for as long as the budget lasts. ``known`` are
    units that the reader sees anyway: their terms count as said, and they are not selected. If
    nothing can be scored or nothing fits, the head of the first unit stands for all. ``notes`` are
    those of earlier selections with the same counter, to which this one adds. ``count(text) <=
    budget`` holds for every counter. The method assumes that separate parts count no less than the
    joined text; if that fails, the units taken last are removed again.
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
        self._bulk = {position for position, unit in enumerate(units) if _is_bulk(unit)}
        self._floors = _floors(units, self._message, weights.floor * budget)
        self._added: dict[int, list[tuple[int, list[int]]]] = {}
        for companion in set(chain.from_iterable(self._company.values())):
            if not self._terms[companion]:
                self._tokens[companion] = count(" " + units[companion].text)
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
        read_notes: list[UnitNote] = []
        spoken: set[tuple[str, str]] = set()
        names = own_names(self._units)
        for unit in (*known, *self._units):
            text = unit.text
            key = unit.speaker, text.casefold()
            idle = key in spoken or is_back_channel(text, names)
            spoken.add(key)
            read_notes.append(_NOTHING if idle else notes.get(text) or self._read(text))
        frequency = Counter(chain.from_iterable([note.terms for note in read_notes]))
        kinds = dict.fromkeys(frequency, PLAIN)
        decisions = chain.from_iterable([note.decisions for note in read_notes])
        kinds |= dict.fromkeys(decisions, DECISION)
        anchors = chain.from_iterable([note.anchors for note in read_notes])
        kinds |= dict.fromkeys(anchors, ANCHOR)
        kinds |= dict.fromkeys(names & kinds.keys(), _NO_KIND)
        by_kind = {
            _NO_KIND: 0.0,
            PLAIN: 1.0,
            DECISION: self._weights.decision,
            ANCHOR: self._weights.anchor,
        }
        number = {term: index for index, term in enumerate(frequency)}
        total = len(read_notes)
        # Few pairs of a kind and a frequency are met, each of them often.
        worth = {
            (kind, f): by_kind[kind] * math.sqrt(math.sqrt(f)) * math.log(1 + total / f)
            for kind, f in set(zip(kinds.values(), frequency.values(), strict=True))
        }
        self._worth = [worth[pair] for pair in zip(kinds.values(), frequency.values(), strict=True)]
        for term in (term for note in read_notes[: len(known)] for term in note.terms):
            self._worth[number[term]] *= self._weights.repeat
        own_notes = read_notes[len(known) :]
        self._terms = [tuple(map(number.__getitem__, note.terms)) for note in own_notes]
        self._tokens = [note.tokens for note in own_notes]

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

    def _heading_cost(self, position: int) -> int:
        """Return the tokens of a unit's speaker and date, as far as they are not shown yet."""
        unit, cost = self._units[position], 0
        if self._message[position] not in self._seen_messages and unit.speaker:
            if unit.speaker not in self._labels:
                self._labels[unit.speaker] = self._count(f"\n{unit.speaker}:")
            cost = self._labels[unit.speaker]
        if unit.date not in self._seen_days:
            if unit.date not in self._days:
                self._days[unit.date] = self._count(f"[{unit.date}]\n")
            cost += self._days[unit.date]
        return cost

    def _missing(self, position: int) -> list[int]:
        """Return the units that must come with a unit and are not taken yet."""
        return [
            companion
            for companion in self._company.get(position, ())
            if companion not in self._taken
        ]

    def _cost(self, position: int) -> int:
        """Return the tokens that showing a unit adds, with the units that come with it."""
        cost = self._tokens[position] + self._heading_cost(position)
        if position in self._company and (missing := self._missing(position)):
            shown = {self._message[position]}
            for companion in missing:
                cost += self._tokens[companion]
                if self._message[companion] not in shown:
                    shown.add(self._message[companion])
                    cost += self._heading_cost(companion)
        return cost

    def _gain(self, position: int, cost: int) -> float:
        """Return the worth per token that a unit of ``cost`` adds now."""
        worth = self._worth.__getitem__
        value = sum(map(worth, self._terms[position])) * self._prior[position]
        if position in self._company:
            for companion, added in self._added_terms(position):
                if companion not in self._taken:
                    value += sum(map(worth, added)) * self._prior[companion]
        return value / math.pow(cost + _COST_OFFSET, self._weights.cost_power)

    def _added_terms(self, position: int) -> list[tuple[int, list[int]]]:
        """Return the units that come with a unit, each with the terms that the unit lacks."""
        added = self._added.get(position)
        if added is None:
            own_terms = set(self._terms[position])
            added = self._added[position] = [
                (companion, sorted(set(self._terms[companion]) - own_terms))
                for companion in self._company[position]
            ]
        return added

    def _take(self, position: int, cost: int, *, cut: Unit | None = None) -> None:
        """Show a unit (or ``cut``, a part of it); from now on its terms are worth less."""
        self._left -= cost
        # Its company is taken first, so that removing the last units leaves no unit alone.
        for member in [position] if cut else [*self._missing(position), position]:
            unit = cut or self._units[member]
            self._taken.setdefault(member, unit)
            if unit.role in self._floors:
                self._floors[unit.role] -= self._tokens[member]
            if unit.speaker:
                self._seen_messages.add(self._message[member])
            self._seen_days.add(unit.date)
            for term in self._terms[member]:
                self._worth[term] *= self._weights.repeat

    def stand(self, places: Iterable[int]) -> None:
        """Take these units as far as they fit."""
        for position in places:
            if position not in self._taken and (cost := self._cost(position)) <= self._left:
                self._take(position, cost)

    def represent(self, group: Sequence[int], piece: int) -> None:
        """Take the best unit of a group, cut to ``piece`` tokens if none is shorter.

        A group whose units all say nothing is represented by its first unit.
        """
        room = min(piece, self._left)
        if not group or room <= 0 or any(position in self._taken for position in group):
            return
        group = [
            position for position in group if self._terms[position] and position not in self._bulk
        ] or group
        best, best_gain, best_cost = group[0], 0.0, piece + 1
        for position in group:
            if not self._terms[position]:
                continue
            cost = self._cost(position)
            gain = self._gain(position, cost)
            if cost > room:  # Only the fitting part has worth.
                gain *= _PART * room / cost
            if gain > best_gain:
                best, best_gain, best_cost = position, gain, cost
        if self._terms[best] and best_cost <= room:
            self._take(best, best_cost)
        else:
            self._take_head(best, room)

    def _take_head(self, position: int, room: int) -> None:
        """Show as much of a unit as fits ``room`` tokens.

        If its speaker's name and its date would fill the room, the name goes first, then the date.
        """
        unit = self._units[position]
        heading = self._heading_cost(position)
        if heading > room // 2:
            heading = 0 if unit.date in self._seen_days else self._days[unit.date]
            unit = replace(unit, speaker="")
        if heading > room // 2:
            unit, heading = replace(unit, date=""), 0
        # The first token of a line may merge differently than after a space: both must fit.
        text = _head(unit.text, room - heading, lambda text: self._count("\n" + text))
        if text:
            cost = heading + self._count("\n" + text)
            self._take(position, min(cost, room), cut=replace(unit, text=text))

    def fill(self, *, bulk: bool = True) -> None:
        """Spend the rest of the budget on the units that add most per token, until nothing fits."""
        if self._left <= _CRUMB:
            return
        passed = self._taken if bulk else self._taken.keys() | self._bulk
        waiting = [
            position
            for position, terms in enumerate(self._terms)
            if terms and position not in passed
        ]
        if min((self._tokens[position] for position in waiting), default=0) > self._left:
            return
        queue = self._bounds(waiting)
        heapq.heapify(queue)
        version = 0
        while queue and self._left > _CRUMB:
            bound, position, seen = heapq.heappop(queue)
            if position in self._taken:
                continue
            cost = self._cost(position)
            if cost > self._left - self._owed(position):
                continue
            # A bound of this version is the gain itself.
            gain = self._gain(position, cost) if seen != version else -bound
            if gain <= 0:
                continue
            if seen != version and queue and -gain > queue[0][0]:
                heapq.heappush(queue, (-gain, position, version))
                continue
            self._take(position, cost)
            version += 1

    def _owed(self, position: int) -> int:
        """Return the tokens that a unit must leave for roles that are below their floors."""
        own_role = self._units[position].role
        return sum(max(0, floor) for role, floor in self._floors.items() if role != own_role)

    def _bounds(self, waiting: Sequence[int]) -> list[tuple[float, int, int]]:
        """Return the queue entries of units: the present gain of each, its position, and 0.

        The units of one message share one heading. A lone unit that is too long now stays too long:
        another unit has paid for whatever its showing takes off the cost.
        """
        headings: dict[int, int] = {}
        entries: list[tuple[float, int, int]] = []
        for position in waiting:
            if position in self._company:
                cost = self._cost(position)
            else:
                number = self._message[position]
                if number not in headings:
                    headings[number] = self._heading_cost(position)
                cost = self._tokens[position] + headings[number]
                if cost > self._left:
                    continue
            entries.append((-self._gain(position, cost), position, 0))
        return entries

    def measured(self, number: int | None = None) -> Selection:
        """Return the first ``number`` units taken (all for None) as they would be rendered."""
        places = sorted(list(self._taken)[:number])
        units = tuple(self._taken[position] for position in places)
        text = render(units)
        return Selection(units, text, self._count(text))

    def result(self) -> Selection:
        """Return the taken units, after spending the tokens that joining the parts has saved.

        If the counter counts the parts lower than the whole, the units taken last are removed.
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
    for position, unit in enumerate(units):
        answer = unit.role == "assistant"
        prior = 1.0 if unit.role == "user" else weights.other_role
        if (answer and is_closing(unit.text)) or not (unit.ordinal == 0 or has_word(unit.text)):
            prior = 0.0
        elif unit.ordinal == 0:
            if position in company or not (weights.questions and leans(unit.text)):
                prior *= 1 + weights.lead
        elif answer and is_heading(unit.text):
            prior = 0.0
        elif answer and is_item(unit.text):
            prior *= _ITEM
        elif answer and (position + 1 == len(units) or message[position + 1] != message[position]):
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

    A fair share counts messages, because one answer is as long as many questions.
    """
    messages_by_role = Counter(
        role for _, role in {(message[position], unit.role) for position, unit in enumerate(units)}
    )
    total = sum(messages_by_role.values())
    return {
        role: int(room * messages_by_role[role] / total)
        for role in _SPEAKERS
        if messages_by_role[role]
    }


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
    for position, unit in enumerate(units):
        inside = position > 0 and message[position] == message[position - 1]
        if not inside:
            heading = None
        if unit.code:
            continue
        if is_heading(unit.text):
            heading = position
            if position + 1 < len(units) and message[position + 1] == message[position]:
                company[position] = (position + 1,)
        elif is_item(unit.text):
            if heading is not None:
                company[position] = (heading,)
        elif inside and leans(unit.text):
            before = (
                company.get(position - 1, ()) if not is_heading(units[position - 1].text) else ()
            )
            company[position] = (*before[-_CHAIN:], position - 1)
        elif questions and _answers(units, position) and leans(unit.text):
            company[position] = (position - 1,)
    return company


def _answers(units: Sequence[Unit], position: int) -> bool:
    """Return whether a unit begins the message after one that ends in a question."""
    unit = units[position]
    if position == 0 or unit.ordinal or unit.index is None:
        return False
    return units[position - 1].index == unit.index - 1 and units[position - 1].text.endswith("?")


def own_names(units: Iterable[Unit]) -> frozenset[str]:
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
