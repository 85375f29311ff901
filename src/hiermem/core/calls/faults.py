"""Decides what is shown of a fault in a model's own code: a function or an adapter that is broken.

An exception's text may hold the prompt, an answer or a key. So it is shown only where Python itself
words such errors, and nothing in the text stands in the request or looks like a key. The places in
the code hold no data and are always shown.
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
    said = type(error).__name__
    own = isinstance(error, HiermemError) and not isinstance(error, ModelError)
    if (own or isinstance(error, _WORDED)) and _is_safe(error, "\n".join(texts)):
        said += f": {error}"
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


def _is_safe(error: BaseException, request: str) -> bool:
    text = str(error)
    if not text or len(text) > _MOST or not text.isprintable() or _KEY.search(text):
        return False
    if isinstance(error, LookupError):
        # The text is what was looked up, which may be data.
        quoted = ["".join(found) for found in _QUOTED.findall(text)]
        if any(each in request for each in quoted):
            return False
    runs = {text[at : at + _RUN] for at in range(max(1, len(text) - _RUN + 1))}
    return not any(run in request for run in runs)
