"""What of a message a window holds, and what of earlier ones a summary was shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hiermem.text.measure import body, without_echoes
from hiermem.types import Revision, StoredMessage

#: How many messages of the session before a window are read for its overlap.
OVERLAP_REACH: Final = 200

#: The characters of overlap that were requested, if any were shown.
_SIZE: Final = "overlap"

#: The first message that this text was shown, and the first that any text of the node was.
_FIRST, _EVER = "overlap_from", "overlap_ever"


def was_shown(revision: Revision, index: int, *, ever: bool = False) -> bool:
    """Return whether the text of a later window was shown some of message ``index``.

    With ``ever``, the node's earlier texts, which are kept, count too.
    """
    first = _shown_index(revision.extras, _EVER if ever else _FIRST)
    return first is not None and first <= index


def shown_size(revision: Revision) -> int:
    """Return the overlap that a text was made with, 0 if it was shown nothing."""
    return _shown_index(revision.extras, _SIZE) or 0


def _shown_index(extras: Mapping[str, Any], name: str) -> int | None:
    found = extras.get(name)
    return found if isinstance(found, int) else None


def heard(stored: StoredMessage, begin: int, end: int | None) -> str:
    """Return the stretch of a message's body without hiermem's own renderings."""
    text = body(stored.message)
    if not stored.echoes:
        return text[begin:end] if begin or end is not None else text
    stop = len(text) if end is None else min(end, len(text))
    return "".join(text[low:high] for low, high in without_echoes(begin, stop, stored.echoes))


def _part(stored: StoredMessage, begin: int, end: int | None) -> str:
    """Return a name for a part of a message: the message's hash and the part's characters."""
    echoes = "".join(f"-{first}:{last}" for first, last in stored.echoes)
    return f"{stored.hash}[{begin}:{'' if end is None else end}{echoes}]"
