"""Decides what a bank file may be called, and which file names a text mentions.

A name is accepted as it is or refused; it is never repaired, and never joined to a path to test it.
An accepted name is one flat name that every file system can hold and no reader can mistake: letters
and digits of any script, a few marks, and ``.md`` at its end.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

#: The longest name in UTF-8. File systems take 255; an export writes beside it under a longer one.
MOST_BYTES: Final = 200
SUFFIX: Final = ".md"
_SIZE: Final = f"it must have 1 to {MOST_BYTES} bytes"
_PUNCTUATION: Final = frozenset(" -_.()+,&")
_KINDS: Final = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Nd"})
#: Invisible letters and marks: fillers, joiners, variation selectors, inherent vowels.
_UNSEEN: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
#: Device names of Windows, reserved in any folder and with any ending.
_DEVICES: Final = frozenset(
    {"con", "prn", "aux", "nul", "conin", "conout", "clock"}
    | {f"{port}{number}" for port in ("com", "lpt") for number in "0123456789¹²³"}
)
#: Separators of names in prose, in lists, in code and in links.
_RUN: Final = re.compile(r"[^\s`\"'*()<>\[\],;:|{}!?=#~]+")


def check_file_name(name: object) -> str | None:
    """Return what is wrong with ``name`` as the name of a bank file; None if nothing is.

    The answer repeats no part of the name.

    >>> check_file_name("progress.md"), check_file_name("../progress.md")
    (None, 'it holds a character other than letters, digits, spaces and - _ . ( ) + , &')
    """
    if not isinstance(name, str):
        return "it is no text"
    if not name or len(name) > MOST_BYTES:
        return _SIZE
    return _characters(name) or _form(name)


def _form(name: str) -> str | None:
    """Return what is wrong with a name whose characters are all allowed."""
    stem = name.removesuffix(SUFFIX)
    if not name.endswith(SUFFIX) or not stem:
        return f"it must be a name that ends in {SUFFIX}"
    if not (stem[0].isalnum() or stem[0] == "_"):
        return "it must begin with a letter, a digit or _"
    if ".." in name or "  " in name or stem[-1] in " .":
        return "it must not hold two dots or two spaces in a row, nor end in one before .md"
    if name.partition(".")[0].strip().casefold() in _DEVICES:
        return "it is the name of a device on some systems"
    return None


def _characters(name: str) -> str | None:
    """Return what is wrong with the characters of a name, whatever their order."""
    kinds = unicodedata.category
    if not all(char in _PUNCTUATION or kinds(char) in _KINDS for char in name):
        return "it holds a character other than letters, digits, spaces and - _ . ( ) + , &"
    if _UNSEEN.search(name):
        return "it holds a character that cannot be seen"
    if unicodedata.normalize("NFKC", name) != name:
        return "it must be written in plain characters (NFC, no compatibility forms)"
    if len(name.encode("utf-8")) > MOST_BYTES:
        return _SIZE
    return None


def fold(name: str) -> str:
    """Return the form in which some file systems take two names for one."""
    return unicodedata.normalize("NFC", name.casefold())


def names_in(text: str) -> Iterator[str]:
    """Yield the file names that a text mentions, each as often as it occurs, in order.

    Paths and names inside them are skipped; only ``./`` before a name is allowed.

    >>> list(names_in("Write `progress.md` and docs/notes.md, or *log.md*."))
    ['progress.md', 'log.md']
    """
    for run in _RUN.findall(text):
        name = unicodedata.normalize("NFC", run.removeprefix("./").rstrip("._-…。、"))
        if not name.endswith(SUFFIX):
            continue
        name = name.lstrip("_") if run.endswith("_") else name
        if check_file_name(name) is None:
            yield name
