"""Decides where a text that is too long is cut, and which excerpt of it a few hundred tokens show.

The slices joined are the text, code point for code point, and no cut parts a grapheme cluster (an
accented letter, a flag, a family emoji, CR LF) that would fit by itself. A slice ends at the last
blank line in its second half; without one, at a line end, a sentence end, white space, or between
two clusters, in this order. The caller supplies the cost of a text; this module only keeps within
the limit. All of it is linear in the text. Clusters are those of Unicode's UAX #29, as ``regex``
knows them.

An excerpt, such as of a tool's output, holds the beginning, the end, and of the lines between them
those that differ from the rest: lines that tell of a failure first, then those whose words are rare
in the text. Lines of one shape (equal but for figures and long identifiers) stand once, with their
number; the room that is left, if it is to be ``filled``, goes to more of them, in turn from the
beginning, from the end and evenly from between. ``GAP`` stands on a line of its own wherever
something is left out. The same text, limit and counter always give the same excerpt. Time grows
with the length of the text; tokens are counted of chosen lines only.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain, pairwise
from math import fsum, log
from operator import or_
from typing import Any, Final, NamedTuple

from hiermem.atfork import finish_before_fork
from hiermem.tokens import stretch_counter


class Piece(NamedTuple):
    """A stretch of a text that is to be cut.

    Where ``price`` is set, it is the token cost of the whole piece, which is then never cut.
    ``extra`` tokens are added in the slice in which the piece begins.
    """

    text: str
    price: int | None = None
    extra: int = 0


@cache
@finish_before_fork  # regex compiles under a lock
def _cluster() -> Any:
    import regex  # it takes 20 ms, and plain ASCII text does not need it

    # By itself \X counts all flags before each flag.
    return regex.compile("[\U0001f1e6-\U0001f1ff]{2}(?=[\U0001f1e6-\U0001f1ff])|\\X")


def is_boundary(text: str, place: int, start: int = 0) -> bool:
    """Return whether a grapheme cluster ends before ``place``; ``start`` is a known boundary.

    >>> is_boundary("e\u0301e", 1), is_boundary("e\u0301e", 2)
    (False, True)
    """
    if place <= start or place >= len(text):
        return True
    if text[place].isascii() and text[place - 1].isascii():
        return text[place - 1 : place + 1] != "\r\n"
    # What comes before a letter, a figure or an ASCII sign does not tell where later clusters end.
    first = place - 1
    while first > start and not (text[first].isascii() or text[first].isalnum()):
        first -= 1
    return _last_boundary(text, first, place) == place


def _last_boundary(text: str, start: int, end: int) -> int:
    """Return the last place up to ``end`` where a cluster ends, or ``start``."""
    # One more character tells whether a cluster ends at ``end``.
    ends = (start + found.end() for found in _cluster().finditer(text[start : end + 1]))
    return max((place for place in ends if place <= end), default=start)


_BLANK_LINES = re.compile(r"\n(?:[ \t\r\f\v]*+\n)+")
_ENDING = ".!?\u2026\u061f\u0964"
_ENDS = rf"[{_ENDING}]++[\"'\)\]\u00bb\u201d\u2019]*+\s++"
# A run of full stops is tried from its beginning only: tried from each of them, it would take a
# time that grows with its square.
_SENTENCE_END = re.compile(
    rf"(?<![{_ENDING}]){_ENDS}|[\u3002\uff01\uff1f]++[\u300d\u300f\uff09\u201d\u2019]*+"
)
_REST_OF_RUN = re.compile(_ENDS)
_SPACES = (" ", "\t", "\u3000")


def best_break(text: str, start: int, end: int, low: int | None = None) -> int:
    """Return the best place, after ``start`` and up to ``end``, to end the slice that began there.

    The place is in the second half (or from ``low`` on, where that is later). Where no cluster
    ends in the whole slice, it is ``end``: the cluster is larger than the slice.
    """
    half = start + (end - start + 1) // 2
    low = max(half, start + 1, low or 0)
    line_ends = partial(_after_each, "\n")
    for places in (_blank_lines, line_ends, _sentence_ends, _white_spaces):
        for place in places(text, low, end):
            if is_boundary(text, place, start):
                return place
    if is_boundary(text, end, start):
        return end
    place = _last_boundary(text, start, end)
    return place if place > start else end


def _blank_lines(text: str, low: int, end: int) -> Iterator[int]:
    # Start one character before, so that a blank line that ends right at ``low`` counts.
    found = [match.end() for match in _BLANK_LINES.finditer(text, max(0, low - 2), end)]
    return (place for place in reversed(found) if place >= low)


def _sentence_ends(text: str, low: int, end: int) -> Iterator[int]:
    run = _REST_OF_RUN.match(text, low - 1, end)  # it may have begun before
    found = [run.end()] if run else []
    begin = found[0] if found else low - 1
    found += [match.end() for match in _SENTENCE_END.finditer(text, begin, end)]
    return (place for place in reversed(found) if place >= low)


def _white_spaces(text: str, low: int, end: int) -> Iterator[int]:
    # Each kind of space is searched by itself, because rfind is a pass in C; the last hit counts.
    places = [next(_after_each(space, text, low, end), 0) for space in _SPACES]
    last = max(places)
    if last:
        yield last
        yield from _after_each(_SPACES[places.index(last)], text, low, last - 1)


def _after_each(char: str, text: str, low: int, end: int) -> Iterator[int]:
    """Return the places after each ``char``, the last one first, from ``end`` down to ``low``."""
    place = text.rfind(char, low - 1, end)
    while place >= 0:
        yield place + 1
        place = text.rfind(char, low - 1, place)


def char_points(text: str, room: int) -> tuple[int, ...]:
    """Return the offsets that cut ``text`` into slices of at most ``room`` code points."""
    points: list[int] = []
    start = 0
    while len(text) - start > room:
        start = best_break(text, start, start + room)
        points.append(start)
    return tuple(points)


def token_points(
    pieces: Sequence[Piece],
    room: int,
    count: Callable[[str], int],
    *,
    stretches: Callable[[int, int], int] | None = None,
) -> tuple[int, ...]:
    """Return the offsets that cut the joined ``pieces`` into slices of at most ``room`` tokens.

    ``stretches`` counts stretches of the joined text, if it is at hand.

    A slice's tokens are the counts of the texts in it, piece by piece, plus the prices and extras
    of its pieces. A slice is over ``room`` only for a piece with a price, or a cluster, over it.
    """
    if stretches is None:
        stretches = stretch_counter("".join(piece.text for piece in pieces), count)
    return tuple(_Slicer(pieces, room, stretches).points)


class _Slicer:
    """One cutting, from the left, each slice as long as fits.

    Each slice is found by probing: the length is guessed from the characters per token of the last
    probe, counted, and corrected. A probe is never longer than four times the fitting length, and
    a slice takes a handful of probes, so all probes together are a few passes over the text.
    """

    def __init__(
        self, pieces: Sequence[Piece], room: int, count: Callable[[int, int], int]
    ) -> None:
        self.points: list[int] = []
        self._room = room
        self._count = count
        self._text = "".join(piece.text for piece in pieces)
        self._ratio = 4.0
        self._used = 0
        begin = 0
        for piece in pieces:
            stop = begin + len(piece.text)
            due = piece.extra + (piece.price or 0)
            # A piece without cost (an empty text) stays with the piece before it.
            if due and self._used and self._used + due > room:
                self._close(begin)
            self._used += due
            if piece.price is None:
                self._take(begin, stop, due)
            begin = stop

    def _close(self, place: int, *, used: int = 0) -> None:
        self.points.append(place)
        self._used = used

    def _take(self, begin: int, stop: int, due: int) -> None:
        """Put a piece into the open slice, and close slices as they fill."""
        place = begin
        while place < stop:
            room = self._room - self._used
            end, tokens, over = self._fit(place, stop, room)
            if end == stop:
                self._used += tokens
                return
            if end == place and place == begin and self._used > due:
                # No further character fits into the slice.
                self._close(begin, used=due)
                continue
            cut = self._cut(place, end, over, room)
            if cut == stop:
                self._used += self._count(place, stop)
                return
            self._close(cut, used=due if cut == begin else 0)
            place = cut

    def _fit(self, place: int, stop: int, room: int) -> tuple[int, int, int]:
        """Probe how far the text from ``place`` fits ``room`` tokens.

        Returns an end that fits and nearly fills the room, its tokens, and the nearest end known
        not to fit (or ``stop`` + 1).
        """
        fits, tokens, over = place, 0, stop + 1
        if room <= 0:
            return fits, tokens, place + 1
        # A cut moves back to a boundary anyway, so the search leaves out the last three per cent.
        enough = room - room // 32
        aim = (enough + room) // 2
        probe = min(stop, place + max(1, int(aim * self._ratio)))
        turn = 0
        while over - fits > 1:
            counted = self._count(place, probe)
            if counted:
                self._ratio = (probe - place) / counted
            if counted > room:
                over = probe
            else:
                fits, tokens = probe, counted
                if fits == stop or counted >= enough:
                    break
            turn += 1
            guess = place + int((probe - place) * aim / max(counted, 1))
            if turn >= 4 and over <= stop:
                guess = (fits + over) // 2
            probe = min(max(guess, fits + 1), over - 1, place + 4 * (probe - place))
        return fits, tokens, over

    def _cut(self, place: int, end: int, over: int, room: int) -> int:
        """Choose where the open slice ends, up to ``end``, which is known to fit."""
        start = self.points[-1] if self.points else 0
        text = self._text
        last = end
        while last > place:
            cut = best_break(text, start, last, place)
            if cut <= place:
                return cut
            if not is_boundary(text, cut, start):
                return self._cluster_end(place, end, over, room)
            if cut == end or self._count(place, cut) <= room:
                return cut
            if is_boundary(text, end, start):
                return end
            # A prefix can cost more than the whole, because its last word is cut: take less,
            # character by character where little is left.
            last = cut - 1 - (cut - place) // 8 if cut - place > 64 else cut - 1
        return max(end, place + 1)

    def _cluster_end(self, place: int, end: int, over: int, room: int) -> int:
        """End a slice that is one cluster and does not end by ``end``: whole, if it fits."""
        start = self.points[-1] if self.points else 0
        # A cluster that is longer than the remaining room cannot fit.
        limit = min(over, end + 64 + (end - place) // 8)
        later: int = start + _cluster().match(self._text[start:limit]).end()
        return later if later < limit and self._count(place, later) <= room else end


#: Marks a place where lines are left out. Without a letter, it is no unit of a summary.
GAP: Final = "[...]"
#: The shares of the limit for the beginning and for the end.
_HEAD: Final = 0.25
_TAIL: Final = 0.25
#: The most code points of a line that is chosen as a whole; a longer one is cut into pieces.
_LINE: Final = 240
#: The most code points of a token of any common vocabulary. A text that is longer than so many a
#: token is not counted: it is over the limit.
_LONGEST_TOKEN: Final = 128
#: Tokens of a line end and of the gap beside a line, and of the end of one beside a chosen line.
_FRAME: Final = 4
_LINE_END: Final = 2

_FAILURE: Final = re.compile(
    r"error|fail|exception|traceback|fatal|panic|critical|assert|warn|denied|refused|abort|"
    r"not found|no such|cannot|could not|unable|timed? ?out|segfault|conflict|undefined|"
    r"fehler|erreur|错误|失败|エラー",
    re.IGNORECASE,
)
#: A line of a file that is shown with its number, as far as the number tells.
_NUMBERED: Final = re.compile(r"\s*(\d{1,6})[:|](?!\d)")
#: Figures and long identifiers, in which lines of one shape may differ.
_LONG: Final = re.compile(r"[\w+/=.-]{32,}")
_FIGURES: Final = re.compile(r"\d+(?:[.:,]\d+)*")
_BLANKS: Final = re.compile(r"\s+")
_WORD: Final = re.compile(r"[^\W\d_]{2,}")
_ANY_WORD: Final = re.compile(r"\w")
#: Ends of the records of a text without lines: JSON, a list of values.
_RECORD_END: Final = re.compile(r"(?<=[\]}])[,;]\s*")


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of the text, or a piece of a long one: its place, its text and its shape.

    ``listed``: it is of a file that is shown, so its words are no message of a program.
    """

    place: int
    text: str
    shape: str
    listed: bool


def excerpt(text: str, limit: int, count: Callable[[str], int], *, filled: bool = False) -> str:
    r"""Return ``text`` if it has at most ``limit`` tokens, else an excerpt of at most so many.

    ``count`` counts tokens. An excerpt is over the limit only if the limit is too small for the
    beginning of a line and ``GAP``. Lines of a shape that stands already take part of the limit
    only if it is to be ``filled``.

    >>> log = "\n".join(["run 3 cases", *(f"case {n} passed" for n in range(90)), "ok"])
    >>> print(excerpt(log, 24, lambda text: len(text.split())))
    run 3 cases
    case 0 passed [x90]
    [...]
    ok
    """
    if len(text) <= limit * _LONGEST_TOKEN and count(text) <= limit:
        return text
    lines = list(_lines(text))
    if not lines:
        return ""
    room = limit - _FRAME
    while True:
        found = _Choice(lines, limit, room, count).text(filled=filled)
        over = count(found) - limit
        # Lines of odd characters may take more tokens together than each by itself.
        if over <= 0 or room <= 0:
            return found
        room -= over


def tells_of_failure(line: str) -> bool:
    """Return whether a line of a tool's result reports a failure; one of a listed file does not."""
    return _NUMBERED.match(line) is None and _FAILURE.search(line) is not None


def _lines(text: str) -> Iterator[_Line]:
    place = 0
    lines = text.splitlines()
    # A line is listed if its number rises to or from that of the line beside it.
    numbers = [int(found[1]) if (found := _NUMBERED.match(line)) else -1 for line in lines]
    rises = [0 <= one < other for one, other in pairwise(numbers)]
    listings = map(or_, [False, *rises], [*rises, False])
    for line, listed in zip(lines, listings, strict=False):
        for piece in _pieces(line.rstrip()):
            # A mark of a code block that lost its other half would hide what follows it.
            numbered = _NUMBERED.match(piece) if listed else None
            said = piece[numbered.end() :] if numbered else piece
            if _ANY_WORD.search(said) and not piece.lstrip().startswith("```"):
                # Lines that differ in figures and long identifiers have a shape in common.
                shape = _BLANKS.sub(" ", _FIGURES.sub("0", _LONG.sub("#", piece))).strip()
                yield _Line(place, piece, shape, listed)
                place += 1


def _pieces(line: str) -> Iterator[str]:
    """Yield a line, or the pieces of a long one: its records, sentences or stretches."""
    if len(line) <= _LINE:
        yield line
        return
    start = 0
    for end in (*(match.end() for match in _RECORD_END.finditer(line)), len(line)):
        record = line[start:end]
        at = 0
        for point in (*char_points(record, _LINE), len(record)):
            yield record[at:point].strip()
            at = point
        start = end


def _evenly(number: int) -> Iterator[int]:
    """Yield the numbers from 0 up to ``number`` so that the first n of them lie about evenly."""
    step = 1 << number.bit_length()
    yield from range(min(1, number))
    while step > 1:
        step //= 2
        yield from range(step, number, 2 * step)


class _Choice:
    """The lines chosen so far, and what is left of the room; the ends have shares of the limit."""

    def __init__(
        self, lines: list[_Line], limit: int, room: int, count: Callable[[str], int]
    ) -> None:
        self._lines, self._limit, self._count = lines, limit, count
        self._numbers = Counter(line.shape for line in lines)
        self._chosen: dict[int, str] = {}
        self._shapes: set[str] = set()
        self._left = room

    def text(self, *, filled: bool) -> str:
        """Choose the beginning, the end, then the lines between by weight; return the excerpt."""
        first, last = self._lines[0], self._lines[-1]
        self._take(first, must=True)
        self._take(last)
        self._take_run(self._lines[1:], round(self._limit * _HEAD))
        self._take_run(self._lines[-2:0:-1], round(self._limit * _TAIL))
        for line in self._by_weight():
            if self._left <= _FRAME:
                break
            self._take(line)
        if filled:
            self._fill()
        out: list[str] = []
        for before, place in pairwise([-1, *sorted(self._chosen), len(self._lines)]):
            out += [GAP] if place > before + 1 else []
            out += [self._chosen[place]] if place in self._chosen else []
        return "\n".join(out)

    def _take_run(self, lines: list[_Line], share: int) -> None:
        """Take lines in order, each shape once, until they have taken the share."""
        least = self._left - share
        for line in lines:
            if line.shape not in self._shapes and (self._left <= least or not self._take(line)):
                return

    def _fill(self) -> None:
        """Take lines from the beginning, from the end and between, in turn by what each took."""
        number = len(self._lines)
        rows = [iter(range(number)), iter(range(number - 1, -1, -1)), _evenly(number)]
        taken = [0] * len(rows)
        while rows:
            turn = taken.index(min(taken))
            place = next((at for at in rows[turn] if at not in self._chosen), None)
            before = self._left
            if place is None or not self._take(self._lines[place], again=True):
                del rows[turn], taken[turn]
            else:
                taken[turn] += before - self._left

    def _take(self, line: _Line, *, must: bool = False, again: bool = False) -> bool:
        """Take a line if its shape is new and it fits; with ``must``, its beginning at least.

        With ``again``, its shape need not be new.
        """
        known = line.shape in self._shapes
        if line.place in self._chosen or (known and not again):
            return False
        number = self._numbers[line.shape]
        shown = f"{line.text} [x{number}]" if number > 1 and not known else line.text
        joins = line.place - 1 in self._chosen or line.place + 1 in self._chosen
        tokens = self._count(shown) + (_LINE_END if joins else _FRAME)
        if tokens > self._left and must:
            # In proportion, as a count of every beginning would cost more than it is worth.
            kept = len(shown) * max(1, self._left - _FRAME) // tokens
            shown = shown[: max(1, kept)]
            tokens = self._left
        if tokens > self._left:
            return False
        self._left -= tokens
        self._chosen[line.place] = shown
        self._shapes.add(line.shape)
        return True

    def _by_weight(self) -> list[_Line]:
        """Return one line of each shape, those of failures before the others, rare words first."""
        number = len(self._lines)
        single = list({line.shape: line for line in reversed(self._lines)}.values())
        words = [set(_WORD.findall(line.text.lower())) for line in self._lines]
        frequency = Counter(chain.from_iterable(words))

        def weight(line: _Line) -> tuple[bool, float, int]:
            fails = not line.listed and _FAILURE.search(line.text) is not None
            # Exact, so that the order of a set of words, which differs by process, does not count.
            rare = fsum(log((1 + number) / frequency[word]) for word in words[line.place])
            return not fails, -rare / (_FRAME + len(words[line.place])), line.place

        return sorted(single, key=weight)
