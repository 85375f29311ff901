"""Tells linear work from quadratic by the processor time that it takes.

The one rule: sizes are compared with each other, never with a clock's idea of fast. The machine may
be busy at one look, so only work that is too slow at every look is called so.
"""

import random
import string
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: What a run of characters may be drawn from: each has its own way through the regular expressions.
#: The ordinary run takes the first and some others, evenly spread.
ALPHABETS = {
    "capitals": string.ascii_uppercase,
    "Han": "\u4eca\u5929\u6211\u4eec\u3002",
    "lines": string.ascii_letters + " \n.-#*",
    "small letters": string.ascii_lowercase,
    "a sequence of DNA": "ACGT",
    "hexadecimal": string.hexdigits[:16],
    "base64": string.ascii_letters + string.digits + "+/",
    "digits": string.digits,
    "figures": string.digits + ".,:-/%",
    "identifiers": string.ascii_letters + "_.",
    "punctuation": string.punctuation,
    "brackets": "[](){}<>",
    "quotes": "\"'`\u201c\u201d\u2018\u2019",
    "white space": " \t\u3000\xa0",
    "line ends": "\n\r\u2028 ",
    "words": "aeinrst ",
    "sentences": "AaEeNn .?!",
    "control characters": "\x01\x1b\x7f\x85",
    "accented": "\xe9\xc8\xfc\xf1\u0160\u0142",
    "combining marks": "e\u0301\u0300\u0323\u034f",
    "Greek": "\u0391\u03b1\u03c3\u03c2\u03a9",
    "Cyrillic": "\u0410\u0430\u0431\u042f\u0436",
    "Hebrew": "\u05d0\u05d1\u05b0\u05e9",
    "Arabic": "\u0627\u0628\u064e\u0640\u0644",
    "Devanagari": "\u0915\u094d\u0937\u093f\u0902",
    "Thai": "\u0e01\u0e34\u0e49\u0e33",
    "kana": "\u3042\u30ab\u30fc\u3099",
    "Hangul": "\uac00\u1100\u1161\u11a8",
    "emoji": "\U0001f600\U0001f469\u200d\U0001f3fd\ufe0f",
    "flags": "\U0001f1e9\U0001f1ea",
    "capitals beyond the first plane": "\U00010400\U00010428\U0001d400",
    "private and unassigned": "\ue000\U000f0000\u0378",
}

#: How many times the smaller input the larger one is.
TIMES = 4


def repeated(unit: str, size: int) -> str:
    """Give ``unit`` again and again, ``size`` characters in all."""
    return (unit * (size // len(unit) + 1))[:size]


def drawn(alphabet: str, size: int) -> str:
    """Draw ``size`` characters of one of the ``ALPHABETS``, always the same."""
    return "".join(random.Random(alphabet).choices(ALPHABETS[alphabet], k=size))


def is_linear(
    prepare: Callable[[int], T],
    work: Callable[[T], object],
    *,
    size: int,
    slack: float = 0.02,
    looks: int = 4,
) -> bool:
    """Say whether ``work`` takes time in proportion to the size of what ``prepare`` gives it.

    It is done for ``size`` and for four times as much. The line is drawn at 2.6 for each doubling:
    linear work takes four times as long, quadratic work sixteen times. ``slack``, in seconds, is
    for what a cache or a collection of garbage adds; it has to stay small beside the larger work.
    """
    small, large = prepare(size), prepare(TIMES * size)
    return any(_spent(work, large) <= 2.6**2 * _spent(work, small) + slack for _ in range(looks))


def _spent(work: Callable[[T], object], given: T) -> float:
    begun = time.process_time()
    work(given)
    return time.process_time() - begun
