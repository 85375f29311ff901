"""Decides which lines of the summaries a context shows, where the zone cannot hold all of them.

Extracts are pooled: the units of all nodes go into one selection for the whole share. The pool uses
the level whose nodes hold several times the share; each of its nodes keeps its best unit before any
node keeps its second. The lines that a piece of the zone already shows, and messages that were
verbatim until now, join the pool, because the nodes may have lost what they say.

Lines that a model wrote are facts. Of them the finest level is shown that is whole in the share: a
text of which lines are left out says less than a coarser one. In what is left, texts give way to
those of the next level below them, which say the same in more words, as far as these fit whole. The
rest goes to the most telling lines below the other texts that say none of their lines again. So a
larger share shows no fewer facts, and nothing is said twice.

Of a model's text the facts are plain dated lines: headings, labels of themes and the marks of lists
are left out, and so is an overview if facts stand below it. A line without a date of its own stands
under the days that the text covers.

A view never waits for a model: where a summary is not made yet, its children replace it, and below
them the first and the last message that it covers.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from hiermem import needs
from hiermem.context import render as verbatim
from hiermem.context.render import LEFT_OUT, Shown
from hiermem.context.view import Covered, covered, refine, within
from hiermem.needs import Reading
from hiermem.summaries import inputs, salience
from hiermem.text import measure, units
from hiermem.text.measure import day, speaker
from hiermem.text.policy import lowest, terms_of, trust_of, words
from hiermem.types import Node, Revision, Trust, Unit
from hiermem.types.ranges import Ranges, ranges_of

_ITEM: Final = re.compile(r"(?:[-*•–]|\(?\d{1,2}[.)])\s+")  # noqa: RUF001
_HEADING: Final = re.compile(r"#+\s*(.+?)[\s:#]*$|(?:\*\*)?([^:*\n]{1,60}?)(?:\*\*)?:(?:\*\*)?$")
_LABEL: Final = re.compile(r"theme(?: \d+)?:", re.IGNORECASE)
_OVERVIEWS: Final = frozenset(("overview", "summary"))
_DATE: Final = re.compile(r"[\[(]?(\d{4}-\d{2}-\d{2})[\])]?(?:\s*[:,–—-]\s*|\s+)(?=\S)")  # noqa: RUF001
#: A line that is the day of the lines below it.
_DAY: Final = re.compile(r"#*\s*[\[(]?(?:[^\W\d]{2,9},? )?(\d{4}-\d{2}-\d{2})[\])]?:?")
#: A line that tells what the assistant said.
_ASSISTANT: Final = re.compile(r"(?:\w{1,3}\W)?ass?ist[ae]n", re.IGNORECASE)
_MARKS: Final = re.compile(r"\*\*(.+?)\*\*")


def span_of(days: tuple[str, str]) -> str:
    """Return the first and the last day as they stand above lines."""
    return days[0] if days[0] == days[1] else f"{days[0]} to {days[1]}"


def facts_of(text: str, days: tuple[str, str]) -> list[Unit]:
    r"""Return each fact of a model's text as a unit with its date.

    ``days`` are the first and the last day that the text covers.

    >>> [(fact.date, fact.text) for fact in facts_of("## Overview\n- Pumps.\n## Key points\n"
    ...     "- 2024-03-02: Ada left.\n- It rained.", ("2024-03-01", "2024-03-02"))]
    [('2024-03-02', 'Ada left.'), ('2024-03-01 to 2024-03-02', 'It rained.')]
    """
    span = span_of(days)
    read = [*_read(text)]
    facts = [fact for fact in read if not fact[0]] or read
    # An ordinal of its own would join a fact to the line before it.
    return [
        Unit(None, 0, "assistant" if _ASSISTANT.match(said) else "user", "", date or span, said)
        for _, date, said in facts
    ]


def first_line(text: str) -> str:
    r"""Return the first line of a summary that says something, without its mark and date.

    >>> first_line("## Overview\n- [2024-03-02] Pumps.\n## Key points"), first_line("[2024-03-02]")
    ('Pumps.', '')
    """
    return next((said for _, _, said in _read(text)), "")


def _read(text: str) -> Iterator[tuple[bool, str, str]]:
    """Yield whether a line is of an overview, its date, and what it says; headings are left out."""
    is_overview, day_above = False, ""
    for line in map(str.strip, text.splitlines()):
        if of_day := _DAY.fullmatch(line):
            day_above = of_day[1]
            continue
        heading = _HEADING.fullmatch(line)
        if heading is not None:
            title = (heading[1] or heading[2] or "").strip("*: ").casefold()
            is_overview = title in _OVERVIEWS
            continue
        item = _ITEM.match(line)
        said = _MARKS.sub(r"\1", line[item.end() if item else 0 :])
        dated = _DATE.match(said)
        said = said[dated.end() if dated else 0 :].strip()
        if said and not _LABEL.match(said):
            yield is_overview, dated[1] if dated else day_above, said


#: Tokens that each node's best unit may take, date and speaker included.
PIECE = 40
#: The pooled level is the level whose nodes together hold this many times the share: one trim of
#: more material keeps more.
DEPTH = 4
#: One part of so many of a share is left for the frame when texts are held against it.
_MARGIN = 20
#: A line says another one again if this share of its terms stands in that.
_AGAIN = 2 / 5
#: A line of so many terms is left out if this share of them stands in a longer one of its day.
_TELLING = 3
_REPEATED = 3 / 4
#: How many nodes below missing summaries a view reads before it quotes first and last messages.
MOST_STAND_INS = 256
#: Number of characters read of a first or last message; a unit of 40 tokens is far shorter.
MOST_QUOTED = 4_000


@dataclass(frozen=True, slots=True)
class _Entry:
    """A node with the units of its text, or of messages that it covers if it has no text yet."""

    item: Covered
    units: list[Unit]
    trust: Trust
    revision: Revision | None = None
    is_copied: bool = False

    @property
    def is_written(self) -> bool:
        """Return whether a model wrote the text."""
        return self.revision is not None and not self.revision.provenance


@dataclass(slots=True)
class Pool:
    """The units of a stretch, before the choice among them.

    ``texts`` holds each pooled text with the positions of its units, ``cover`` the nodes that are
    represented. ``standing`` holds the positions of the units that are shown in any case.
    ``groups`` holds the positions of the groups, each of which gets its best unit before any gets a
    second.
    """

    cover: Sequence[Covered] = ()
    units: list[Unit] = field(default_factory=list[Unit])
    groups: list[Sequence[int]] = field(default_factory=list[Sequence[int]])
    texts: list[tuple[_Entry, range]] = field(default_factory=list["tuple[_Entry, range]"])
    trusts: list[Trust] = field(default_factory=list[Trust])
    #: Lines that stand elsewhere in the same context; what they say need not be said again.
    known: Sequence[Unit] = ()
    #: What stands beside the view of messages, None for all; the view does not show it again.
    said: Mapping[int | None, str | None] = field(default_factory=dict[int | None, str | None])
    standing: Collection[int] = ()

    def choose(
        self, room: int, *, count: Callable[[str], int], weights: salience.Weights
    ) -> tuple[tuple[Unit, ...], tuple[str, ...]]:
        """Choose the units that are shown in ``room`` tokens of text.

        Return them, and the ids of the nodes of which at least one unit is missing.
        """
        rest = [self._unsaid(unit) for unit in self.units]
        left = [(at, unit) for at, unit in enumerate(rest) if unit is not None]
        moved = {place: at for at, (place, _) in enumerate(left)}
        groups = [[moved[place] for place in group if place in moved] for group in self.groups]
        picked = salience.select(
            [unit for _, unit in left],
            room,
            count,
            weights=weights,
            standing=[moved[place] for place in self.standing if place in moved],
            groups=[group for group in groups if group],
            piece=PIECE,
            known=self.known,
        ).units
        kept = {id(unit) for unit in picked}
        whole = {
            entry.item.id
            for entry, places in self.texts
            if all(id(rest[at]) in kept for at in places)
        }
        trimmed = tuple(node.id for node in self.cover if node.id not in whole)
        if any(unit.index is None for unit in picked):
            # What a model wrote may tell of a day before those of the lines above it.
            picked = tuple(sorted(_said_once(picked), key=lambda unit: unit.date[:10]))
        return picked, trimmed

    def places_of(self, node: Covered) -> range:
        """Return the positions of the units of the texts that a node covers."""
        inside = [places for entry, places in self.texts if within(entry.item, node.windows)]
        return range(inside[0].start, inside[-1].stop) if inside else range(0)

    def _unsaid(self, unit: Unit) -> Unit | None:
        """Return what a unit says besides what stands beside the view; None for nothing.

        A line that a model wrote says no more if most of it is the words of a wish.
        """
        if unit.index is None:
            wishes = (w for w in self.said.values() if w and 2 * len(w) > len(unit.text))
            return None if any(wish in unit.text for wish in wishes) else unit
        said = self.said.get(unit.index, "")
        if said is None or unit.text in said:
            return None
        if not said or said not in unit.text:
            return unit
        before, _, after = unit.text.partition(said)
        after = after.lstrip(" ,;:.!?")
        if not words(before + after):
            return None
        # What is left out before a later sentence is marked where the sentences are joined.
        mark = "" if unit.ordinal and not before else LEFT_OUT
        return replace(unit, text=" ".join(f"{before} {mark} {after}".split()))

    def summarised(self, chosen: Iterable[Unit]) -> Ranges:
        """Return the messages under the texts of which a model wrote a chosen line."""
        shown = {unit.text for unit in chosen if unit.index is None}
        return ranges_of(
            index
            for entry, _ in self.texts
            if entry.is_written and any(unit.text in shown for unit in entry.units)
            for index in range(entry.item.span.start, entry.item.span.stop)
        )

    def beside(self, shown: Sequence[Shown]) -> None:
        """Add messages that are newer than the rest of the pool, as a group of their own."""
        begin = len(self.units)
        for item in shown:
            if not item.empty:
                self.units += _units_of(item)
                self.trusts.append(trust_of(item.message))
        if len(self.units) > begin:
            self.groups.append(range(begin, len(self.units)))


def _said_once(chosen: Sequence[Unit]) -> Iterator[Unit]:
    """Yield lines without those that a model wrote and a longer one of the same day says again."""
    by_day: dict[str, list[tuple[int, Collection[str]]]] = {}
    own = [terms_of(unit.text).keys() if unit.index is None else () for unit in chosen]
    for at, (unit, terms) in enumerate(zip(chosen, own, strict=True)):
        by_day.setdefault(unit.date[:10], []).append((at, terms))
    for at, (unit, terms) in enumerate(zip(chosen, own, strict=True)):
        others = by_day[unit.date[:10]] if len(terms) >= _TELLING else ()
        longer = [other for to, other in others if (len(other), -to) > (len(terms), -at)]
        if not any(_is_within(terms, other) for other in longer):
            yield unit


def _is_within(terms: Collection[str], longer: Collection[str]) -> bool:
    """Return whether a line with these terms says no more, and no other figure, than a longer."""
    more = set(terms).difference(longer)
    has_figure = any(char.isdigit() for term in more for char in term)
    return len(more) <= (1 - _REPEATED) * len(terms) and not has_figure


def gather(
    cover: Sequence[Covered],
    share: int,
    *,
    count: Callable[[str], int],
    raw: Sequence[Shown] = (),
    levels: Collection[int] | None = None,
) -> Reading[Pool]:
    """Pool the stretch that ``cover`` represents, to be shown in ``share`` tokens.

    ``raw`` are messages of the stretch that are already loaded. ``levels`` are those whose nodes
    may be used, None for all. Every node of the cover gets at least one unit.
    """
    steps = yield from refine(cover, DEPTH * share, levels)
    if _is_written((yield from _entries(steps[0]))):
        allowed = [s for s in steps if not levels or max(node.level for node in s) in levels]
        pool = yield from _gather_facts(cover, allowed or steps[-1:], share, count=count, raw=raw)
        if levels is not None:
            pool.cover = [entry.item for entry, _ in pool.texts]
    else:
        pool = _pooled(cover, (yield from _entries(steps[-1])), _extra(raw))
        fine = next((step for step in reversed(steps) if 2 * PIECE * len(step) <= share), steps[0])
        pool.groups[:0] = [places for node in fine if (places := pool.places_of(node))]
        if levels is not None:
            pool.cover = steps[-1]
    return pool


def _gather_facts(
    cover: Sequence[Covered],
    steps: Sequence[Sequence[Covered]],
    share: int,
    *,
    count: Callable[[str], int],
    raw: Sequence[Shown],
) -> Reading[Pool]:
    """Pool the texts that a model wrote, of the last of the ``steps`` that fits.

    In what that leaves, texts give way to those below them, as far as these fit. If not even the
    first step fits, what the assistant said goes first, then the least telling lines.
    """
    found, below, room = (yield from _entries(steps[0])), list[_Entry](), share - share // _MARGIN
    for step in steps[1:]:
        below = _without_cheers((yield from _entries(step)), found)
        if _tokens(below, count) > room:
            break
        found, below = below, []
    spare = room - _tokens(found, count)
    if spare >= 0:
        said = found = _opened(found, below, spare, count)
    else:
        said = [replace(e, units=[u for u in e.units if u.role == "user"]) for e in found]
    is_whole = _tokens(said, count) <= room
    extra = _extra(raw) if any(entry.revision is None for entry in found) else {}
    pool = _pooled(cover, found, extra, below if is_whole else ())
    words = {id(unit) for entry in said for unit in entry.units} if is_whole else set[int]()
    pool.standing = [place for place, unit in enumerate(pool.units) if id(unit) in words]
    pool.groups[:0] = [places for _, places in pool.texts if places]
    return pool


def _without_cheers(below: Sequence[_Entry], above: Sequence[_Entry]) -> list[_Entry]:
    """Leave out of copied windows what the texts above them say nothing of: courtesies, farewells.

    A sentence stands if two of its terms do in such a text, the names of the speakers aside.
    """
    kept: list[_Entry] = []
    for entry in below:
        over = [e for e in above if e.is_written and within(entry.item, e.item.windows)]
        names = salience.own_names(entry.units)
        named = set().union(*_terms(over)) - names
        terms = [terms - names for terms in _terms([entry])]
        said = [
            unit
            for unit, own in zip(entry.units, terms, strict=True)
            if own and len(own & named) >= min(2, len(own))
        ]
        kept.append(replace(entry, units=said) if entry.is_copied and over else entry)
    return kept


def _opened(
    found: Sequence[_Entry], below: Sequence[_Entry], spare: int, count: Callable[[str], int]
) -> list[_Entry]:
    """Replace texts by those below them, in ``spare`` more tokens: those that tell most new first.

    So the same is not said twice, once by a text and once by one below it.
    """
    options: list[tuple[float, int, int, list[_Entry]]] = []
    for place, entry in enumerate(found):
        finer = [each for each in below if within(each.item, entry.item.windows)]
        more = _tokens(finer, count) - _tokens([entry], count)
        new = set().union(*_terms(finer)) - set().union(*_terms([entry]))
        options.append((len(new) / max(1, more), place, more, finer))
    opened = {place: [entry] for place, entry in enumerate(found)}
    for _, place, more, finer in sorted(options, key=lambda each: (-each[0], each[1])):
        if finer and more <= spare:
            opened[place], spare = finer, spare - more
    return [entry for place in sorted(opened) for entry in opened[place]]


def _new_below(entry: _Entry, below: Sequence[_Entry]) -> list[Unit]:
    """Return those lines of the texts below a text that say none of its lines again."""
    finer = [unit for e in below if within(e.item, entry.item.windows) for unit in e.units]
    above = _terms([entry]) if finer else []
    return [
        unit
        for unit in finer
        if (own := terms_of(unit.text).keys())
        and all(len(own & each) < _AGAIN * len(own) for each in above)
    ]


def _terms(entries: Iterable[_Entry]) -> list[set[str]]:
    """Return the terms of each line of texts."""
    return [set(terms_of(unit.text)) for entry in entries for unit in entry.units]


def _pooled(
    cover: Sequence[Covered],
    found: Sequence[_Entry],
    extra: Mapping[int, list[Unit]],
    below: Sequence[_Entry] = (),
) -> Pool:
    """Return a pool of the units of ``found``, of ``extra`` ones of their messages.

    Of the texts ``below`` it has the lines that say something new.
    """
    pool = Pool(cover)
    at_hand = sorted(extra)
    for entry in found:
        begin = len(pool.units)
        pool.trusts.append(entry.trust)
        if entry.is_written:
            pool.units += entry.units
        else:
            pool.units += _merged(entry.units, _inside(entry.item, at_hand, extra))
        pool.texts.append((entry, range(begin, len(pool.units))))
        pool.units += _new_below(entry, below)
    for root in cover:
        if not pool.places_of(root):
            at = len(pool.units)
            pool.units.append(_nothing_to_quote(root))
            pool.groups.append(range(at, at + 1))
    return pool


def _is_written(entries: Iterable[_Entry]) -> bool:
    """Return whether a model wrote the texts, as far as these are not copies of short windows."""
    own = [each.is_written for each in entries if each.revision and not each.is_copied]
    return 2 * sum(own) >= len(own) > 0


def _tokens(entries: Sequence[_Entry], count: Callable[[str], int]) -> int:
    return sum(count(units.render(entry.units)) for entry in entries)


def fresh(
    windows: Sequence[Node],
    raw: Sequence[Shown],
    share: int,
    *,
    covers: Sequence[Covered],
    count: Callable[[str], int],
    kept: Sequence[Unit] = (),
) -> Reading[Pool]:
    """Pool windows whose messages, or the relevant ones of them, are in ``raw``.

    If a model summarised them, the largest nodes over them, ``covers``, represent them; otherwise
    their messages do. ``kept`` are lines that represent what ``covers`` hold before the windows.
    """
    own = [(w.id, w.revision) for w in windows if w.revision and not w.verbatim]
    read = yield from needs.revisions(own)
    if own and 2 * sum(bool(each.text and not each.provenance) for each in read) >= len(own):
        return (yield from gather(covers, share, count=count, raw=raw))
    pool = Pool(covers, list(kept))
    for span in [(node.span.start, node.span.stop) for node in covers] if kept else ():
        own_lines = [at for at, unit in enumerate(kept) if unit.index in range(*span)]
        pool.groups += [own_lines] if own_lines else []
    messages = [item.message for item in raw]
    for window in windows:
        begin = len(pool.units)
        held = verbatim.in_window(window, messages)
        for item in held:
            if not item.empty:
                pool.units += _units_of(item)
                pool.trusts.append(trust_of(item.message))
        if len(pool.units) > begin:
            pool.groups.append(range(begin, len(pool.units)))
    pool.groups = _at_most(pool.groups, share // (2 * PIECE))
    return pool


def _at_most(groups: Sequence[Sequence[int]], most: int) -> list[Sequence[int]]:
    """Unite neighbours until there are at most so many groups, so that no part goes without."""
    per = -(-len(groups) // max(1, most)) or 1
    return [
        [place for group in groups[at : at + per] for place in group]
        for at in range(0, len(groups), per)
    ]


def _extra(raw: Iterable[Shown]) -> dict[int, list[Unit]]:
    """Return the units of whole messages, by index."""
    # A message in quarantine still has its text, which no record may say.
    whole = [item for item in raw if not item.partial and not item.empty]
    return {item.message.index: made for item in whole if (made := _units_of(item))}


def _inside(
    item: Covered, indices: Sequence[int], extra: Mapping[int, list[Unit]]
) -> dict[int, list[Unit]]:
    """Return the available units of the messages that a node covers completely."""
    first, last = item.span.start + (item.span.start_char > 0), item.span.stop
    if item.span.stop_char is not None:
        last -= 1
    low, high = bisect_right(indices, first - 1), bisect_right(indices, last - 1)
    return {index: extra[index] for index in indices[low:high]}


def _merged(own: Sequence[Unit], extra: Mapping[int, list[Unit]]) -> list[Unit]:
    """Merge the units of a node with other units of its messages, in order, each unit once.

    A message that was cut into slices numbers its pieces per slice, so its units stay unchanged.
    """
    if not extra:
        return list(own)
    by_message: dict[int, list[Unit]] = {}
    for unit in own:
        by_message.setdefault(-1 if unit.index is None else unit.index, []).append(unit)
    for index, more in extra.items():
        held = by_message.setdefault(index, [])
        ordinals = [unit.ordinal for unit in held]
        if ordinals == sorted(set(ordinals)):
            held += [unit for unit in more if unit.ordinal not in ordinals]
            held.sort(key=lambda unit: unit.ordinal)
    return [unit for _, held in sorted(by_message.items()) for unit in held]


def _entries(sources: Sequence[Covered]) -> Reading[list[_Entry]]:
    """Read the text of each source, or of its children where the source is not made yet.

    Where those are not made either, the first and the last message stand for them.
    """
    made: list[tuple[Node, int]] = []
    missing: list[Covered] = []
    waiting = yield from needs.nodes([item.id for item in sources])
    followed = 0
    while waiting:
        below: list[str] = []
        for node in waiting:
            if node.revision:
                made.append((node, node.revision))
            elif node.children and followed < MOST_STAND_INS:
                followed += len(node.children)
                below += node.children
            else:
                missing.append(covered(node))
        waiting = yield from needs.nodes(below)
    read = yield from needs.revisions([(node.id, number) for node, number in made])
    texts = {revision.node_id: revision for revision in read}
    found: list[_Entry] = []
    for node, _ in made:
        item, revision = covered(node), texts.get(node.id)
        if revision is None:  # It was replaced between the two reads.
            missing.append(item)
        else:
            said = lines_of(revision, item)
            found.append(_Entry(item, said, revision.trust, revision, node.verbatim))
    ends = yield from _ends(missing)
    found += [_Entry(item, *each) for item, each in zip(missing, ends, strict=True)]
    return sorted(found, key=lambda entry: entry.item.windows)


def lines_of(revision: Revision, item: Covered) -> list[Unit]:
    """Return the text of a node's revision as units: kept ones, or the facts that a model wrote.

    Kept ones without a date stand under the days that the node covers.
    """
    if not revision.provenance:
        return facts_of(revision.text, item.days)
    days = span_of(item.days)
    return [unit if unit.date else replace(unit, date=days) for unit in inputs.kept_units(revision)]


def _ends(items: Sequence[Covered]) -> Reading[list[tuple[list[Unit], Trust]]]:
    """Quote the first and the last message that each node without text covers."""
    wanted = [sorted({item.span.start, item.span.stop - 1}) for item in items]
    left = iter((yield from needs.stretches([(at, at + 1) for each in wanted for at in each])))
    found: list[tuple[list[Unit], Trust]] = []
    for item, each in zip(items, wanted, strict=True):
        ends = [stored for _ in each for stored in next(left) if stored.state == "live"]
        shown = [Shown(stored, *inputs.within(item.span, stored.index)) for stored in ends]
        quoted = [unit for part in shown for unit in _units_of(part, MOST_QUOTED)]
        found.append((quoted, lowest(map(trust_of, ends))))
    return found


def _units_of(item: Shown, most: int | None = None) -> list[Unit]:
    """Split what is shown of a message, ``most`` characters of it if given."""
    stored = item.message
    return units.split(
        measure.heard(stored, item.begin, item.end)[:most],
        index=stored.index,
        role=stored.role,
        speaker=speaker(stored.message),
        date=day(stored.created_at),
    )


def _nothing_to_quote(root: Covered) -> Unit:
    """Return a unit for a stretch whose texts are empty, erased or this library's rendering."""
    last = root.span.stop - 1
    return Unit(None, 0, "user", "Record", "", f"messages {root.span.start}-{last}: no text kept.")
