"""Decides which characters of a model's text reach the bank, and which lines an answer loses.

Characters that a reader cannot see can carry text that no reader agreed to: words in tag
characters, a reversed line, a heading that looks like another one. They are removed, so what is
stored is what is shown. A joiner or selector stays if a script or an emoji needs it.

No visible character is changed, except line ends and blanks at either end of a text.

A non-empty line is lost if, its white space folded, it is neither in the new text of its file nor
in what another file gained by the same answer: moving a line loses nothing. A line that is struck
through is still there. The count is what a reader would miss: no line counts twice, and no line
counts that can still be read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

#: The longest bank file, in code points.
MAX_FILE: Final = 262_144

_JOINERS: Final = "\u200c\u200d"
_SELECTORS: Final = "\ufe00-\ufe0f\U000e0100-\U000e01ef"
#: Characters that never show, except in a region's flag, which is spelled in tags.
_UNSEEN: Final = re.compile(
    "(?P<flag>\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{1,6}\U000e007f)"
    "|[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b"
    "\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e00ff]+"
)
#: Characters that may be needed. They are checked last, so that nothing hides between two.
_NEEDED: Final = re.compile(f"[{_SELECTORS}{_JOINERS}]+")
_FORM: Final = re.compile(f"[{_SELECTORS}]?[{_JOINERS}]?")
_KEYCAP: Final = "\u20e3"
_STRUCK: Final = re.compile(r"^(?P<lead>[^~]*)~~(?P<line>.+)~~")


def visible(text: str) -> str:
    r"""Return ``text`` without invisible characters and with plain line ends.

    >>> visible("re\u202ed\r\nan\u200bd \u2764\ufe0f")
    'red\nand ❤️'
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _NEEDED.sub(_kept, _UNSEEN.sub(lambda match: match["flag"] or "", text))


def tidy(text: str) -> str:
    """Return the text of a file as it is stored: visible characters, ending in one line end."""
    text = visible(text).strip("\n")
    lines = text.split("\n")
    while lines and not lines[0].strip():
        del lines[0]
    return "\n".join(lines).rstrip() + "\n" if lines else ""


def folded(line: str) -> str:
    r"""Return a line without invisible characters, its white space folded.

    >>> folded("  -  a\u200b   line ")
    '- a line'
    """
    return " ".join(visible(line).split())


def _kept(match: re.Match[str]) -> str:
    """Keep one selector and one joiner between characters that need them."""
    run, text, start, end = match.group(), match.string, match.start(), match.end()
    if not _FORM.fullmatch(run):
        return ""
    before = text[start - 1] if start else " "
    after = text[end] if end < len(text) else " "
    if run[-1] in _JOINERS:
        return run if not (before.isascii() or after.isascii()) else ""
    return run if after == _KEYCAP or not before.isascii() else ""


# ---------------------------------------------------------------------------------------------
# Lines


def lines_of(text: str) -> list[str]:
    """Return the non-empty lines of a text, folded."""
    return [line for each in text.split("\n") if (line := folded(each))]


def lost_lines(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, tuple[int, int]]:
    """Return for each file that was there how many of its lines are lost, and of how many."""
    old = {name: lines_of(text) for name, text in before.items() if name in after}
    new = {name: set(_readable(text)) for name, text in after.items()}
    gained: set[str] = set()
    for name, readable in new.items():
        gained |= readable.difference(old.get(name, ()))
    found: dict[str, tuple[int, int]] = {}
    for name, lines in old.items():
        still = new[name] | gained
        found[name] = sum(line not in still for line in lines), len(lines)
    return found


def _readable(text: str) -> Iterator[str]:
    """Yield the lines of a text, and the content of the lines that are struck through."""
    for line in lines_of(text):
        yield line
        if found := _STRUCK.match(line):
            yield folded(found["lead"] + found["line"])
