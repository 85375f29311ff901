"""Records which messages before its window a text was shown as overlap.

A summariser may repeat what it was shown, so an erasure has to reach that text too. Which messages
were shown depends on the configuration, the slices and the lengths of messages at the time, and all
of these may change later. The record is therefore written with the text, copied into forks with it,
and never worked out again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from hiermem.core.summaries.inputs import Inputs
from hiermem.types import Revision

#: The characters of overlap that were requested, if any were shown.
_SIZE: Final = "overlap"
#: The first message that this text was shown, and the first that any text of the node was.
_FIRST, _EVER = "overlap_from", "overlap_ever"


def noted(
    revision: Revision, inputs: Inputs, *, size: int, verbatim: bool, before: Revision | None
) -> Revision:
    """Return a new revision with the record of what it was shown, whatever it was taken over from.

    ``size`` is the overlap of the configuration; a ``verbatim`` text was shown nothing. ``before``
    is the node's current revision. It and the earlier ones are kept, so the first message that any
    of them was shown is kept too.
    """
    extras: dict[str, Any] = {
        name: value for name, value in revision.extras.items() if name not in (_SIZE, _FIRST, _EVER)
    }
    first = None if verbatim else inputs.overlap_from
    if first is not None:
        extras[_SIZE], extras[_FIRST] = size, first
    earlier = None if before is None else _index(before.extras, _EVER)
    ever = [each for each in (first, earlier) if each is not None]
    if ever:
        extras[_EVER] = min(ever)
    return replace(revision, extras=extras)


def was_shown(revision: Revision, index: int, *, ever: bool = False) -> bool:
    """Return whether the text of a later window was shown some of message ``index``.

    With ``ever``, the node's earlier texts, which are kept, count too.
    """
    first = _index(revision.extras, _EVER if ever else _FIRST)
    return first is not None and first <= index


def shown_size(revision: Revision) -> int:
    """Return the overlap that a text was made with, 0 if it was shown nothing."""
    return _index(revision.extras, _SIZE) or 0


def _index(extras: Mapping[str, Any], name: str) -> int | None:
    found = extras.get(name)
    return found if isinstance(found, int) else None
