"""What a text was shown beside its inputs: some of the messages before its window.

A summariser may say again what it was shown, so an erasure has to reach that text too. Which
messages that were is decided by the configuration, the slices and the lengths of messages at the
time, all of which may change afterwards. The one rule: it is put on record with the text when that
is made, goes with it into forks, and is never worked out again later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from hiermem.core.summaries.inputs import Inputs
from hiermem.types import Revision

#: The characters that were asked for, where anything was shown.
_SIZE: Final = "overlap"
#: The first message that this text was shown, and that this text or an earlier one of it was.
_FIRST, _EVER = "overlap_from", "overlap_ever"


def noted(
    revision: Revision, inputs: Inputs, *, size: int, verbatim: bool, before: Revision | None
) -> Revision:
    """Give a new revision with the record of what it was shown, whatever it was taken over from.

    ``size`` is the overlap of the configuration; what is kept ``verbatim`` was shown nothing.
    ``before`` is what its node says until then: that and what it said earlier are kept, and so is
    the first message that any of them was shown.
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
    """Say whether the text of a later window was shown some of message ``index``.

    ``ever`` asks it of the earlier texts of its node too, which are kept.
    """
    first = _index(revision.extras, _EVER if ever else _FIRST)
    return first is not None and first <= index


def shown_size(revision: Revision) -> int:
    """Give the overlap that a text was made with, 0 where it was shown nothing."""
    return _index(revision.extras, _SIZE) or 0


def _index(extras: Mapping[str, Any], name: str) -> int | None:
    found = extras.get(name)
    return found if isinstance(found, int) else None
