"""Stores an application's feedback on a session's summaries: a score from 0 to 1, and a note.

Feedback belongs to what was judged. A summary's id names another summary after a re-pack, and
another stretch after its group was split, so the record names the tree and the windows too.
Feedback counts in the session's mean whichever tree serves, and is deleted when one of its messages
is erased.
"""

from __future__ import annotations

import json
from typing import Any, Final

from hiermem.core import arguments
from hiermem.core.metrics import Feedback
from hiermem.core.search.hits import Hit
from hiermem.core.text.policy import check, check_name
from hiermem.engine.handle import Handle
from hiermem.errors import NotFoundError, StoreBusyError, UsageError
from hiermem.types import Node, SessionRecord
from hiermem.types.transaction import RecordWrite

#: The kind of the records; their scope is the session, their key the target of the feedback.
FEEDBACK: Final = "feedback"
#: The longest note, in characters, and how many notes are kept for a target: the newest ones.
_MAX_NOTE: Final = 4_000
_NOTES: Final = 100
_TRIES: Final = 20


async def give(handle: Handle, session_id: str, target: object, *, score: Any, note: str) -> None:
    """Record a score for a summary, a message or anything that has the id of one.

    Raises NotFoundError if the session has no such summary or message.
    """
    value = arguments.share(score, "score")
    text = check(note, what="note", cap=_MAX_NOTE)
    for _ in range(_TRIES):
        record = await handle.record(session_id)
        key = await _key(handle, record, target)
        found = await handle.store.records(FEEDBACK, scope=session_id, key=key)
        kept = _read(found[0].body if found else "")
        said = {"score": value, "at": handle.clock().isoformat(), "note": text}
        body = {
            "count": kept["count"] + 1,
            "total": kept["total"] + value,
            "notes": [*kept["notes"], said][-_NOTES:],
        }
        write = RecordWrite(
            FEEDBACK, session_id, key, json.dumps(body), found[0].version if found else 0
        )
        # In a later epoch the text that was judged may be gone, so it is looked up again.
        if await handle.store.put_records([write], epochs={session_id: record.epoch}):
            return
    raise StoreBusyError(f"feedback on session {session_id!r}: others kept writing the same record")


async def total(handle: Handle, session_id: str) -> Feedback:
    """Add up the feedback of a session."""
    kept = [_read(record.body) for record in await handle.store.records(FEEDBACK, scope=session_id)]
    return Feedback(sum(each["count"] for each in kept), sum(each["total"] for each in kept))


async def _key(handle: Handle, record: SessionRecord, target: object) -> str:
    """Name the target of the feedback: a summary in its tree, or a message's index."""
    if isinstance(target, Hit):
        target = target.summary or target.message
    name = target if isinstance(target, str) else getattr(target, "id", None)
    if isinstance(name, str):
        check_name(name, what="summary id")
        found = await handle.store.tree(record.id, record.tree).nodes([name])
        if not found or not _is_that(found[0], target):
            raise NotFoundError(f"session {record.id!r} has no summary {name!r}, or not this one")
        first, last = found[0].windows
        return f"{record.tree}/{name}/{first}-{last}"
    index = getattr(target, "index", None)
    if not isinstance(index, int) or isinstance(index, bool) or isinstance(target, (list, tuple)):
        raise UsageError(
            f"feedback takes a summary, a hit, a message or an id, not {type(target).__name__}"
        )
    if not 0 <= index < record.messages:
        raise NotFoundError(f"session {record.id!r} has no message {index}")
    return f"message/{index}"


def _is_that(node: Node, target: object) -> bool:
    """Return whether a node still covers what the caller's summary did.

    A bare id is accepted, and so is a node that is still open.
    """
    span = getattr(target, "span", node.span)
    return not node.sealed or span == node.span


def _read(body: str) -> dict[str, Any]:
    """Read a record; a record that ``give`` did not write reads as empty."""
    try:
        data = json.loads(body)
        whole = {
            "count": int(data["count"]),
            "total": float(data["total"]),
            "notes": list(data["notes"]),
        }
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return {"count": 0, "total": 0.0, "notes": []}
    return whole
