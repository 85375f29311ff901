"""Token counters: exact by default, offline, and safe on any text.

A count depends only on the text and the counter's name; no text is read as a special token.
Importing this module loads neither tiktoken nor the vocabulary. A short ASCII text is counted with
the mapped vocabulary; what that is too slow for loads tiktoken, once per process.
``hiermem.text.measure`` decides what a message costs besides its text.

A long text is counted on a thread, so that the event loop serves other tasks meanwhile. A short one
is counted in place, because handing it to a thread takes longer.
"""

from __future__ import annotations

import asyncio
import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from itertools import accumulate, filterfalse, pairwise
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, TypeVar

from hiermem.atfork import finish_before_fork
from hiermem.data import vocabulary
from hiermem.errors import UsageError

if TYPE_CHECKING:
    import tiktoken

    from hiermem.protocols import TokenCounter
    from hiermem.types import Message, StoredMessage

__all__ = [
    "ApproximateCounter",
    "FunctionCounter",
    "TiktokenCounter",
    "as_counter",
    "default_counter",
    "in_thread_if_long",
    "sizes_of",
    "tokens_of",
]

T = TypeVar("T")

SHIPPED = "o200k_base"

# The pattern by which OpenAI splits text before merging bytes, as published in tiktoken's
# openai_public.py (MIT). The ranks and this pattern together are the encoding.
_O200K_PATTERN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*"
    r"|\s*[\r\n]+"
    r"|\s+(?!\S)"
    r"|\s+"
)
_O200K_SPECIAL = {"<|endoftext|>": 199999, "<|endofprompt|>": 200018}

# tiktoken's regex engine keeps a million places to go back to and panics on a longer run of white
# space; such runs are cut out before it sees them. Its white space is Unicode's White_Space, which
# Python's \s exceeds by four control characters, so the class is written out.
_LONG_RUN = 200_000
_BLANKS = "\t\x0b\x0c \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
#: What is kept of a long run of one character, and the multiple by which the rest is left out.
_ENDS, _PERIOD = 4_096, 1_024
_RUN_IN_LINE = re.compile(f"(?<![{_BLANKS}])[{_BLANKS}]{{{_LONG_RUN},}}")
_RUN_OF_LINES = re.compile(f"(?<![{_BLANKS}\r\n])[{_BLANKS}\r\n]{{{_LONG_RUN},}}")

# The same pattern for ASCII text, in Python's dialect: what it finds are the same pieces. A short
# text is counted by it, because each call of tiktoken gives up the interpreter lock, for which
# threads then wait longer than the count takes.
_ENDING = r"(?:'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL]))?"
_ASCII_PIECE = re.compile(
    rf"[^\r\nA-Za-z0-9]?[A-Z]*[a-z]+{_ENDING}"
    rf"|[^\r\nA-Za-z0-9]?[A-Z]+{_ENDING}"
    r"|[0-9]{1,3}"
    r"| ?[^\sA-Za-z0-9]+[\r\n/]*"
    r"|\s*[\r\n]+"
    r"|\s+(?!\S)"
    r"|\s+",
    re.ASCII,
)
#: Up to so many characters a text is counted so; beyond it the call costs little beside the work.
_SHORT_TEXT = 4_000
#: Pieces met so far that are one token each. Each is an entry of the public vocabulary, so their
#: number is bounded and they tell nothing of who said them.
_whole_pieces: set[str] = set()
#: How many characters beyond the end of a piece may say that it ends there, and a few more.
_LOOK_AHEAD = 8

_lock = Lock()


@lru_cache(maxsize=1)
def _build_shipped() -> tiktoken.Encoding:
    import tiktoken

    return tiktoken.Encoding(
        name=SHIPPED,
        pat_str=_O200K_PATTERN,
        mergeable_ranks=vocabulary(SHIPPED).ranks(),
        special_tokens=_O200K_SPECIAL,
    )


@finish_before_fork
def _shipped() -> tiktoken.Encoding:
    """Build the shipped encoding once per process, whichever thread asks first."""
    with _lock:
        return _build_shipped()


@finish_before_fork  # tiktoken holds a lock meanwhile
def _published(name: str) -> tiktoken.Encoding:
    """Load another encoding from tiktoken, which may need the network or its own cache for that."""
    import tiktoken

    names = tiktoken.list_encoding_names()
    if name not in names:
        raise UsageError(
            f"token encoding {name!r} is unknown to tiktoken; it knows {', '.join(names)}"
        )
    try:
        return tiktoken.get_encoding(name)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"token encoding {name!r} could not be loaded ({type(error).__name__}); allow its "
            f"download, or use {SHIPPED!r}"
        ) from error


class TiktokenCounter:
    """Counts exactly as a tiktoken encoding does.

    ``encoding`` is a name or a ``tiktoken.Encoding``; the default, ``o200k_base``, is package data
    and is loaded when it is needed. Any other name is loaded at once, so that a missing one fails
    where it was asked for (UsageError). Safe to share between threads.

    >>> TiktokenCounter().count("<|endoftext|> is plain text here") > 3
    True
    """

    __slots__ = ("_encoding", "_is_shipped", "_name")

    def __init__(self, encoding: str | tiktoken.Encoding = SHIPPED) -> None:
        self._encoding: tiktoken.Encoding | None
        self._is_shipped = encoding == SHIPPED
        if isinstance(encoding, str):
            self._name = encoding
            self._encoding = None if encoding == SHIPPED else _published(encoding)
        else:
            self._name = encoding.name
            self._encoding = encoding

    def __repr__(self) -> str:
        return f"TiktokenCounter({self._name!r})"

    @property
    def name(self) -> str:
        """Return ``tiktoken:`` and the encoding's name."""
        return f"tiktoken:{self._name}"

    def count(self, text: str) -> int:
        """Count the tokens of ``text``, exactly, never reading any of it as a special token."""
        if len(text) <= _SHORT_TEXT and self._is_shipped and text.isascii():
            return _count_ascii(text)
        encoding = self._encoding
        if encoding is None:
            encoding = self._encoding = _shipped()
        if len(text) < _LONG_RUN:
            return len(encoding.encode_ordinary(text))
        if self._is_shipped:
            text, left_out = _without_long_runs(encoding, text)
            return left_out + self._count_long(encoding, text)
        return self._count_long(encoding, text)

    def _is_in_pieces(self, text: str) -> bool:
        """Return whether ``text`` may be counted by its pieces."""
        return self._is_shipped and text.isascii() and len(text) < _LONG_RUN

    def _count_long(self, encoding: tiktoken.Encoding, text: str) -> int:
        r"""Count a text that may hold a run of white space too long for the regex engine.

        Exact, because such a run is a piece of its own. In o200k_base and cl100k_base a run ends
        its newlines in one piece (``\s*[\r\n]+``), so only what follows its last newline can be
        long here: at least two blanks, of which ``\s+(?!\S)`` takes all but the last where text
        follows, and all at the end. No piece can begin before such a stretch and reach into it:
        the piece before would have to end in a blank, and none of the patterns that can do so
        stops before the run does. In the older encodings newlines are white space like any other.
        """
        inline = "o200k" in self._name or "cl100k" in self._name
        pattern = _RUN_IN_LINE if inline else _RUN_OF_LINES
        total = place = 0
        for run in pattern.finditer(text):
            start, end = run.span()
            if end < len(text) and not (inline and text[end] in "\r\n"):
                end -= 1
            elif end < len(text):
                # A newline follows: the run and its newlines are one piece of a pattern without
                # look-ahead, which the engine takes at any length.
                continue
            total += len(encoding.encode_ordinary(text[place:start]))
            total += _count_piece(encoding, text[start:end])
            place = end
        return total + len(encoding.encode_ordinary(text[place:] if place else text))


def _without_long_runs(encoding: tiktoken.Encoding, text: str) -> tuple[str, int]:
    """Shorten the runs of one character in ``text``; return it and the tokens that it lost.

    tiktoken's time grows faster than the length of a piece, and a megabyte of full stops is one
    piece. Exact: the pair of equal tokens with the lowest rank is merged from the left, so all but
    the ends of a run become tokens of 2, 4, 8, … characters, and the two ends do not depend on
    what lies between. ``_PERIOD`` characters more are therefore always the same number of tokens
    more, which is measured and not assumed. Digits are taken in threes, and blanks have their own
    rules.
    """
    kept: list[str] = []
    lost = done = place = 0
    while place + _ENDS <= len(text):
        char = text[place]
        is_run = char.isascii() and not char.isdigit() and not char.isspace()
        if not is_run or text[place : place + _ENDS] != char * _ENDS:
            place += _ENDS
            continue
        end = _run_of(char).match(text, place).end()  # type: ignore[union-attr]
        periods = (end - place - _ENDS) // _PERIOD
        tokens = _tokens_of_period(encoding, char) if periods > 0 else None
        if tokens is not None:
            kept.append(text[done : place + _ENDS])
            done = place + _ENDS + periods * _PERIOD
            lost += periods * tokens
        place = max(end, place + _ENDS)
    return "".join(kept) + text[done:] if kept else text, lost


@cache
def _run_of(char: str) -> re.Pattern[str]:
    return re.compile(re.escape(char) + "*+")


@cache
def _tokens_of_period(encoding: tiktoken.Encoding, char: str) -> int | None:
    """Return the tokens of ``_PERIOD`` more of a character in a long run, None if they differ."""
    counts = [len(encoding.encode_ordinary(char * (_ENDS + n * _PERIOD))) for n in range(4)]
    steps = {after - before for before, after in pairwise(counts)}
    return steps.pop() if len(steps) == 1 else None


def _count_piece(encoding: tiktoken.Encoding, piece: str) -> int:
    """Count one piece that must not be split, past the regex engine."""
    # tiktoken has no public call for this; its own documentation names this one as the way.
    return len(encoding._encode_single_piece(piece))  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def _count_ascii(text: str, parted: dict[str, int] | None = None) -> int:
    """Count a short ASCII text in the shipped encoding, exactly.

    ``parted`` are the tokens of pieces met before that are several each.
    """
    pieces = _ASCII_PIECE.findall(text)
    others = list(filterfalse(_whole_pieces.__contains__, pieces))
    if not others:
        return len(pieces)
    parted = {} if parted is None else parted
    return len(pieces) - len(others) + sum(_tokens_of(each, parted) for each in others)


def _tokens_of(piece: str, parted: dict[str, int]) -> int:
    """Return the tokens of an ASCII piece, and remember them.

    Until so many pieces were merged here that loading tiktoken is worth it, that is not loaded.
    """
    tokens = parted.get(piece)
    if tokens is None:
        if _merged[0] < _MOST_MERGED and len(piece) <= _LONGEST_MERGED:
            tokens = _merge(piece.encode())
        else:
            tokens = _count_piece(_shipped(), piece)
        if tokens == 1:
            _whole_pieces.add(piece)
        else:
            parted[piece] = tokens
    return tokens


#: So many pieces are merged without tiktoken, of at most so many characters.
_MOST_MERGED = 2_000
_LONGEST_MERGED = 64
_merged = [0]


def _merge(piece: bytes) -> int:
    """Return the tokens of a piece: the pair of the lowest rank is merged until no pair is one."""
    if _rank(piece) < _NO_RANK:
        return 1
    _merged[0] += 1
    parts = [piece[at : at + 1] for at in range(len(piece))]
    ranks = [_rank(one + other) for one, other in pairwise(parts)]
    # At least two parts are left, because the piece is no token.
    while (lowest := min(ranks)) < _NO_RANK:
        at = ranks.index(lowest)
        parts[at] += parts.pop(at + 1)
        del ranks[at]
        if at < len(ranks):
            ranks[at] = _rank(parts[at] + parts[at + 1])
        if at:
            ranks[at - 1] = _rank(parts[at - 1] + parts[at])
    return len(parts)


#: The rank of what is no token: above that of every token.
_NO_RANK = 1 << 24


@lru_cache(4096)  # the same pairs of letters come again and again
def _rank(token: bytes) -> int:
    rank = vocabulary(SHIPPED).rank(token)
    return _NO_RANK if rank is None else rank


def stretch_counter(text: str, count: Callable[[str], int]) -> Callable[[int, int], int]:
    """Return a function of ``begin`` and ``end`` that is ``count(text[begin:end])``.

    Where ``count`` is that of the shipped encoding, the text is read once for all stretches.
    """
    counter = getattr(count, "__self__", None)
    if (
        type(counter) is TiktokenCounter and count == counter.count and counter._is_in_pieces(text)  # noqa: SLF001
    ):
        return _piece_counter(text)
    return lambda begin, end: count(text[begin:end])


def _piece_counter(text: str) -> Callable[[int, int], int]:
    """Return the function that counts the stretches of an ASCII text from its pieces, exactly.

    The pattern looks only ahead. So from any end of a piece on, the pieces of a stretch are those
    of the text, whatever came before, up to the last few characters of the stretch: no more of them
    can say where a piece ends, or that white space follows.
    """
    pieces = _ASCII_PIECE.findall(text)
    ends = [0, *accumulate(map(len, pieces))]
    counts: list[int] = list(map(_whole_pieces.__contains__, pieces))
    parted: dict[str, int] = {}
    at = -1
    for _ in range(counts.count(0)):
        at = counts.index(0, at + 1)
        counts[at] = _tokens_of(pieces[at], parted)
    sums = [0, *accumulate(counts)]

    def count(begin: int, end: int) -> int:
        total, place = 0, begin
        safe = min(end, len(text)) - _LOOK_AHEAD
        first = bisect_left(ends, place)
        while place <= safe and ends[first] != place:
            # Bounded by the stretch: a piece of the text may be as long as the text.
            piece = _ASCII_PIECE.match(text, place, end)
            assert piece is not None  # every character is part of a piece
            if piece.end() > safe:
                break
            total += _count_ascii(piece.group())
            place = piece.end()
            first = bisect_left(ends, place)
        if place <= safe and ends[first] == place:
            last = bisect_right(ends, safe) - 1
            total += sums[last] - sums[first]
            place = ends[last]
        return total + _count_ascii(text[place:end])

    return count


#: How many lines, and pieces of several tokens, a run remembers; how many texts its notes are of.
_MOST_KEPT = 4_096
_MOST_NOTES = 32_768


class RunCounter:
    """Counts for one run, whose texts share lines: each of them is counted once.

    Exact: in the pattern of the shipped encoding, a line end belongs to the piece before it, and no
    piece goes on behind it, unless with white space or a slash. A text is counted as a whole where
    ``counter`` is not known to count so.

    It holds lines, and what readers of the run's texts noted of them; so it should live no longer
    than the run.
    """

    __slots__ = ("_counter", "_known", "_notes", "_parted", "_shipped")

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self._shipped: TiktokenCounter | None = None
        if type(counter) is TiktokenCounter and counter._is_shipped:  # noqa: SLF001
            self._shipped = counter
        self._known: dict[str, int] = {}
        self._parted: dict[str, int] = {}
        self._notes: dict[str, Any] = {}

    @property
    def notes(self) -> dict[str, Any]:
        """Return the notes, by the texts that they are of; when there are many, they are dropped.

        There is room for those of a page of windows, from which the nodes above are made.
        """
        if len(self._notes) > _MOST_NOTES:
            # A reader may still use the old ones.
            self._notes = {}
        return self._notes

    @property
    def name(self) -> str:
        """Return the name of the counter."""
        return self._counter.name

    def count(self, text: str) -> int:
        """Count the tokens of ``text``."""
        if self._shipped is None or "\n" not in text:
            return self._count_whole(text)
        if len(self._known) > _MOST_KEPT:
            self._known = {}
        total = 0
        held, *lines = text.split("\n")
        for line in lines:
            if not line or line[0] == "/" or line[0].isspace():
                held = f"{held}\n{line}"
            else:
                total += self._count_line(f"{held}\n")
                held = line
        return total + self._count_line(held)

    def _count_line(self, line: str) -> int:
        tokens = self._known.get(line)
        if tokens is None:
            tokens = self._known[line] = self._count_whole(line)
        return tokens

    def _count_whole(self, text: str) -> int:
        if self._shipped is None or len(text) > _SHORT_TEXT or not text.isascii():
            return self._counter.count(text)
        if len(self._parted) > _MOST_KEPT:
            self._parted = {}
        return _count_ascii(text, self._parted)


@lru_cache(maxsize=1)
def default_counter() -> TokenCounter:
    """Return the default counter, one for the whole process.

    >>> default_counter().name
    'tiktoken:o200k_base'
    """
    return TiktokenCounter()


def as_counter(given: Any) -> TokenCounter:
    """Return a token counter: the default for None, that of a named encoding, or ``given``.

    A counter of the application is wrapped, so that each of its answers is checked. Raises
    UsageError for anything else, and for an encoding that tiktoken does not know.
    """
    from hiermem.protocols import TokenCounter, offers, refused

    if given is None:
        return default_counter()
    if isinstance(given, str):
        return TiktokenCounter(given)
    if isinstance(given, type) or not (offers(given, TokenCounter) and isinstance(given.name, str)):
        right = (
            "have a name and count(), be the name of an encoding such as 'o200k_base', or be None"
        )
        raise refused(given, TokenCounter, "token_counter", right)
    if type(given) in (TiktokenCounter, ApproximateCounter, FunctionCounter):
        return given
    checked = FunctionCounter(given.count, name="given")
    checked._name = given.name  # noqa: SLF001 - as the application's sessions name it
    return checked


class FunctionCounter:
    """A counter made of a plain function ``text -> int``; ``name`` is stored with each session."""

    __slots__ = ("_function", "_name")

    def __init__(self, function: Callable[[str], int], *, name: str) -> None:
        if not callable(function):
            raise UsageError(
                f"function is {type(function).__name__}; pass a callable from text to its "
                "number of tokens"
            )
        if not isinstance(name, str) or not name:
            raise UsageError("name must be a text; it identifies the counts in the store")
        self._function = function
        self._name = f"function:{name}"

    def __repr__(self) -> str:
        return f"FunctionCounter({self._name.removeprefix('function:')!r})"

    @property
    def name(self) -> str:
        """Return ``function:`` and the given name."""
        return self._name

    def count(self, text: str) -> int:
        """Call the function; raise UsageError if its answer is not a count.

        Every count is stored or added to stored ones, so that a wrong one would spoil a session.
        """
        tokens = self._function(text)
        if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 0:
            raise UsageError(
                f"token counter {self.name!r} returned a {type(tokens).__name__}; return an int "
                "of 0 or more"
            )
        return tokens


# The cost of a run of each script, as (characters a token, tokens for beginning a run), fitted to
# o200k_base on ordinary text of the script and rounded up. Order matters: the first matching class
# of a character counts.
_RUNS: tuple[tuple[str, float, float], ...] = (
    (r"[A-Z]?[a-z]{17,}", 1.8, 1.0),  # no word: letters at random
    (r"[a-z]+|[A-Z][a-z]+", 8.0, 0.78),  # words
    (r"[A-Z]+", 2.0, 0.75),  # capitals, constants, the halves of base64
    (r"[0-9]+", 3.0, 0.9),
    (r"[ \t]{2,}|[\r\n]+[ \t]*", 12.0, 1.0),  # indentation
    (r"[!-/:-@\[-`{-~]", 1.25, 0.0),  # ASCII punctuation, each by itself
    (r"[\u00a1-\u024f\u1e00-\u1eff]+", 2.0, 0.4),  # accented Latin between plain letters
    (r"[\u0370-\u03ff\u1f00-\u1fff]+", 2.7, 1.0),  # Greek
    (r"[\u0400-\u052f]+", 4.5, 0.8),  # Cyrillic
    (r"[\u0590-\u05ff]+", 2.4, 0.8),  # Hebrew
    (r"[\u0600-\u07ff]+", 4.0, 0.7),  # Arabic
    (r"[\u0900-\u0dff]+", 3.0, 0.9),  # the scripts of India
    (r"[\u0e00-\u0eff]+", 2.2, 1.0),  # Thai, Lao
    (r"[\u3040-\u30ff]+", 1.4, 0.5),  # kana
    (r"[\u4e00-\u9fff]+", 1.15, 0.4),  # Han
    (r"[\uac00-\ud7a3]+", 1.3, 0.5),  # Hangul
    (r"[\u2000-\u206f\u3000-\u303f\uff01-\uff60]", 1.0, 0.0),  # punctuation of all scripts
    (r"[\u0250-\uffff]", 0.4, 0.0),  # the rest of the plane: at most three bytes
    (r"[\U00010000-\U0010ffff]", 0.3, 0.0),  # emoji, rare Han: at most four bytes
)


@lru_cache(maxsize=1)
def _runs_pattern() -> re.Pattern[str]:
    return re.compile("|".join(f"({pattern})" for pattern, _, _ in _RUNS))


class ApproximateCounter:
    """A counter that estimates without a vocabulary: by script and word length, rather too high.

    On ordinary text of the scripts it knows, the estimate is a tenth to a half above what
    o200k_base counts; it is no bound for text made to defeat it. Deterministic, one pass.

    >>> ApproximateCounter().count("")
    0
    """

    __slots__ = ()

    name = "approximate-1"

    def __repr__(self) -> str:
        return "ApproximateCounter()"

    def count(self, text: str) -> int:
        """Estimate the tokens of ``text``; at least 1 for a text that is not empty."""
        total = 0.0
        for run in _runs_pattern().finditer(text):
            _, width, first = _RUNS[(run.lastindex or 1) - 1]
            total += first + (run.end() - run.start()) / width
        return max(1, math.ceil(total)) if text else 0


#: Above this many characters counting would block the event loop for about ten milliseconds.
LONG: Final = 50_000
#: So few messages take less time than a thread does.
_FEW: Final = 64


async def tokens_of(count: Callable[[str], int], texts: Sequence[str]) -> int:
    """Return the tokens of all texts together."""
    return sum(await sizes_of(count, texts))


async def sizes_of(count: Callable[[str], int], texts: Sequence[str]) -> list[int]:
    """Return the tokens of each text."""
    if sum(map(len, texts)) <= LONG:
        return [count(text) for text in texts]
    return await asyncio.to_thread(lambda: [count(text) for text in texts])


async def in_thread_if_long(
    work: Callable[[], T], messages: Sequence[Message | StoredMessage]
) -> T:
    """Do work on messages, on a thread where they are many or long."""
    if len(messages) <= _FEW and sum(len(each.content) for each in messages) <= LONG:
        return work()
    return await asyncio.to_thread(work)
