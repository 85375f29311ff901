"""Decides what a few hundred tokens show of a text that is far longer, such as a tool's output.

An excerpt holds the beginning, the end, and of the lines between them those that differ from the
rest: lines that tell of a failure first, then those whose words are rare in the text. Lines of one
shape (equal but for figures and long identifiers) stand once, with their number. ``GAP`` stands on
a line of its own wherever something is left out. The same text, limit and counter always give the
same excerpt. Time grows with the length of the text; tokens are counted of chosen lines only.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log
from typing import Final

from hiermem.text.slices import char_points

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
#: Tokens of a line end, and of the gap beside a line.
_FRAME: Final = 4

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


def excerpt(text: str, limit: int, count: Callable[[str], int]) -> str:
    r"""Return ``text`` if it has at most ``limit`` tokens, else an excerpt of about so many.

    ``count`` counts tokens. An excerpt is over the limit only if the limit is too small for the
    beginning of a line and ``GAP``.

    >>> log = "\\n".join(["run 3 cases", *(f"case {n} passed" for n in range(90)), "ok"])
    >>> print(excerpt(log, 24, lambda text: len(text.split())))
    run 3 cases
    case 0 passed [x90]
    [...]
    ok
    """
    if len(text) <= limit or (len(text) <= limit * _LONGEST_TOKEN and count(text) <= limit):
        return text
    lines = list(_lines(text))
    return _Choice(lines, limit, count).text() if lines else ""


def tells_of_failure(line: str) -> bool:
    """Return whether a line of a tool's result reports a failure; one of a listed file does not."""
    return _NUMBERED.match(line) is None and _FAILURE.search(line) is not None


def _lines(text: str) -> Iterator[_Line]:
    place = 0
    lines = text.splitlines()
    for line, listed in zip(lines, _listed(lines), strict=True):
        for piece in _pieces(line.rstrip()):
            # A mark of a code block that lost its other half would hide what follows it.
            numbered = _NUMBERED.match(piece) if listed else None
            said = piece[numbered.end() :] if numbered else piece
            if _ANY_WORD.search(said) and not piece.lstrip().startswith("```"):
                yield _Line(place, piece, _shape(piece), listed)
                place += 1


def _listed(lines: Sequence[str]) -> Iterator[bool]:
    """Yield for each line whether it has a number that rises to or from the line beside it."""
    numbers = [int(found[1]) if (found := _NUMBERED.match(line)) else -1 for line in lines]
    rises = [0 <= one < other for one, other in pairwise(numbers)]
    return (before or after for before, after in zip([False, *rises], [*rises, False], strict=True))


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


def _shape(line: str) -> str:
    """Return what lines that differ in figures and long identifiers have in common."""
    return _BLANKS.sub(" ", _FIGURES.sub("0", _LONG.sub("#", line))).strip()


class _Choice:
    """The lines chosen so far, and what is left of the limit."""

    def __init__(self, lines: list[_Line], limit: int, count: Callable[[str], int]) -> None:
        self._lines, self._limit, self._count = lines, limit, count
        self._numbers = Counter(line.shape for line in lines)
        self._chosen: dict[int, str] = {}
        self._shapes: set[str] = set()
        self._left = limit - _FRAME

    def text(self) -> str:
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
        out: list[str] = []
        before = -1
        for place in sorted(self._chosen):
            if place > before + 1:
                out.append(GAP)
            out.append(self._chosen[place])
            before = place
        if before < len(self._lines) - 1:
            out.append(GAP)
        return "\n".join(out)

    def _take_run(self, lines: list[_Line], share: int) -> None:
        """Take lines in order, each shape once, until they have taken the share."""
        least = self._left - share
        for line in lines:
            if line.shape in self._shapes:
                continue
            if self._left <= least or not self._take(line):
                return

    def _take(self, line: _Line, *, must: bool = False) -> bool:
        """Take a line if its shape is new and it fits; with ``must``, its beginning at least."""
        if line.shape in self._shapes:
            return False
        number = self._numbers[line.shape]
        shown = f"{line.text} [x{number}]" if number > 1 else line.text
        tokens = self._count(shown) + _FRAME
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
        """Return one line of each shape, those of failures first, then those of rare words."""
        number = len(self._lines)
        single = list({line.shape: line for line in reversed(self._lines)}.values())
        words = {line.place: set(_WORD.findall(line.text.lower())) for line in single}
        frequency: Counter[str] = Counter()
        for line in self._lines:
            frequency.update(words.get(line.place) or set(_WORD.findall(line.text.lower())))

        def weight(line: _Line) -> tuple[bool, float, int]:
            rare = sum(log((1 + number) / frequency[word]) for word in words[line.place])
            fails = not line.listed and _FAILURE.search(line.text) is not None
            return not fails, -rare / (_FRAME + len(words[line.place])), line.place

        return sorted(single, key=weight)
