"""Decides what is shown of a fault in a model's own code: a function or an adapter that is broken.

An exception's text may hold the prompt, an answer or a key. So it is shown only where Python itself
words such errors; of any other text, what stands as a literal in the code that raised it. Nothing
that is shown stands in the request or looks like a key. The places in the code hold no data and are
always shown.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable
from typing import Final

from hiermem.errors import HiermemError, ModelError

#: The errors whose texts Python writes, out of names in the code and of types.
_WORDED: Final = (
    ArithmeticError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    NotImplementedError,
    RecursionError,
    TypeError,
)
_MOST: Final = 200
#: Of a longer text, only the beginning is compared with the code's literals.
_READ: Final = 4_000
#: Shorter literals of the code, such as a comma, say nothing.
_LITERAL: Final = 4
#: So many characters in a row that stand in the request too are content.
_RUN: Final = 12
#: What may be a key: long, of letters with digits or dashes.
_KEY: Final = re.compile(r"(?=[\w.-]*[\d-])[\w.-]{12,}")
_QUOTED: Final = re.compile(r"'([^']+)'|\"([^\"]+)\"")
#: The most places that are shown, the innermost last.
_PLACES: Final = 8
_FOLDERS: Final = re.compile(r".*[/\\]")
_OURS: Final = __file__.rpartition("core")[0]


def described(error: BaseException, texts: Iterable[str]) -> str:
    """Return the kind of ``error``, its text where that is safe to show, and its innermost place.

    ``texts`` are those of the request.
    """
    said, request = type(error).__name__, "\n".join(texts)
    own = isinstance(error, HiermemError) and not isinstance(error, ModelError)
    whole = _text_of(error)
    known = whole if own or isinstance(error, _WORDED) else ""
    for text in (known, _literals_of(error, whole)):
        if _is_safe(text, request, is_looked_up=isinstance(error, LookupError)):
            said += f": {text}"
            break
    found = places(error)
    return f"{said} ({found[-1]})" if found else said


def places(error: BaseException) -> list[str]:
    """Return where in the code ``error`` was raised, outermost first, without hiermem's own code.

    Where all of it is hiermem's, the call itself was wrong, and that code is named.
    """
    found = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    theirs = [each for each in found if not each[0].co_filename.startswith(_OURS)]
    return [
        f"{_FOLDERS.sub('', code.co_filename)}:{line} in {code.co_name}"
        for code, line in (theirs or found)[-_PLACES:]
    ]


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - it runs code of the error's class
        return ""


def _literals_of(error: BaseException, text: str) -> str:
    """Return what of ``text`` stands as a literal in the code that raised ``error``.

    Whatever was put between the literals is replaced by "…"; "" means that no literal was found.
    """
    codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    literals = [
        each
        for each in (codes[-1].co_consts if codes else ())
        if isinstance(each, str) and len(each.strip()) >= _LITERAL
    ]
    if not literals:
        return ""
    longest_first = sorted(literals, key=len, reverse=True)
    parts = re.split(f"({'|'.join(map(re.escape, longest_first))})", text[:_READ])
    if len(parts) == 1:
        return ""
    return "".join(part if place % 2 else "…" if part else "" for place, part in enumerate(parts))


def _is_safe(text: str, request: str, *, is_looked_up: bool) -> bool:
    if not text or len(text) > _MOST or not text.isprintable() or _KEY.search(text):
        return False
    if is_looked_up:
        # The text is what was looked up, which may be data.
        quoted = ["".join(found) for found in _QUOTED.findall(text)]
        if any(each in request for each in quoted):
            return False
    runs = {text[at : at + _RUN] for at in range(max(1, len(text) - _RUN + 1))}
    return not any(run in request for run in runs)
