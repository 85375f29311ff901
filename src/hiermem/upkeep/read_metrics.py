"""Reads what a session's metrics are computed from, and stores an application's feedback.

``summaries.metrics`` defines what the figures mean. The store adds up. Only the roots are read here
and, below them, only what is not made yet.
"""

from __future__ import annotations

import json
from typing import Any, Final

from hiermem import arguments
from hiermem.calls.limits import Prices
from hiermem.context.view import SEEN, Seen
from hiermem.errors import NotFoundError, StoreError, UsageError
from hiermem.handle import Handle, session_state
from hiermem.search.results import Hit
from hiermem.summaries.metrics import Feedback, Metrics, Served, measure
from hiermem.text.policy import check, check_name
from hiermem.tree.fold import SessionState
from hiermem.types import Node, SessionRecord
from hiermem.types.transaction import NeedViews, RecordWrite

#: The kind of the records; their scope is the session, their key the target of the feedback.
FEEDBACK: Final = "feedback"
#: The longest note, in characters, and how many notes are kept for a target: the newest ones.
_MAX_NOTE: Final = 4_000
_NOTES: Final = 100
_TRIES: Final = 20


async def metrics(handle: Handle, session_id: str, prices: Prices | None) -> Metrics:
    """Measure the session as it is now. ``prices`` adds what was saved and spent in money."""
    if prices is not None:
        arguments.optional(prices, "prices", Prices, lambda: Prices(0, 0))
    record = await handle.record_or_new(session_id)
    state = session_state(record)
    return measure(
        session_id,
        messages=record.messages,
        open_tokens=sum(window.tokens for window in state.open_windows()),
        cover_tokens=await _cover_tokens(handle, session_id, state),
        tallies=await handle.store.tree(session_id).tally(),
        spent=await handle.store.spent(session_id),
        feedback=await _feedback(handle, session_id),
        served=await _served(handle, session_id),
        prices=prices,
    )


async def _cover_tokens(handle: Handle, session_id: str, state: SessionState) -> int:
    """Add up the highest existing texts, and the input of windows that no text covers."""
    total, tree = 0, handle.store.tree(session_id)
    wanted = [root.id for root in state.roots()]
    while wanted:
        nodes = await tree.nodes(wanted)
        texts = await tree.revisions([(node.id, node.revision) for node in nodes if node.revision])
        tokens_of = {revision.node_id: revision.tokens for revision in texts}
        wanted = []
        for node in nodes:
            if node.id in tokens_of or not node.children:
                total += tokens_of.get(node.id, node.input_tokens)
            else:
                wanted += node.children
    return total


async def _served(handle: Handle, session_id: str) -> Served:
    """Add up what the session's sticky views have rendered since they were begun."""
    (views,) = await handle.store.read([(session_id, NeedViews())])
    decoded = [Seen.from_json(view.state) for view in views if view.name.endswith(SEEN)]
    states = [each for each in decoded if each is not None]
    return Served(
        selections=sum(each.selections for each in states),
        tokens=sum(each.rendered for each in states),
        shared=sum(each.shared for each in states),
    )


# -- feedback


async def give_feedback(
    handle: Handle, session_id: str, target: object, *, score: Any, note: str
) -> None:
    """Record a score for a summary, a message or anything that has the id of one.

    Feedback belongs to what was judged. A summary's id names another summary after a re-pack, and
    another stretch after its group was split, so the record names the tree and the windows too.
    Feedback counts in the session's mean whichever tree serves, and is deleted when one of its
    messages is erased.

    Raises NotFoundError if the session has no such summary or message.
    """
    value = arguments.share(score, "score")
    text = check(note, what="note", cap=_MAX_NOTE)
    for _ in range(_TRIES):
        record = await handle.record(session_id)
        key = await _target_key(handle, record, target)
        records = await handle.store.records(FEEDBACK, scope=session_id, key=key)
        scores = _scores(records[0].body if records else "")
        said = {"score": value, "at": handle.clock().isoformat(), "note": text}
        body = {
            "count": scores["count"] + 1,
            "total": scores["total"] + value,
            "notes": [*scores["notes"], said][-_NOTES:],
        }
        write = RecordWrite(
            FEEDBACK, session_id, key, json.dumps(body), records[0].version if records else 0
        )
        # In a later epoch the text that was judged may be gone, so it is looked up again.
        if await handle.store.put_records([write], epochs={session_id: record.epoch}):
            return
    raise StoreError(
        f"too much concurrent feedback on session {session_id!r}; retry", retryable=True
    )


async def _feedback(handle: Handle, session_id: str) -> Feedback:
    """Add up the feedback of a session."""
    kept = [
        _scores(record.body) for record in await handle.store.records(FEEDBACK, scope=session_id)
    ]
    return Feedback(sum(each["count"] for each in kept), sum(each["total"] for each in kept))


async def _target_key(handle: Handle, record: SessionRecord, target: object) -> str:
    """Name the target of the feedback: a summary in its tree, or a message's index."""
    if isinstance(target, Hit):
        target = target.summary or target.message
    name = target if isinstance(target, str) else getattr(target, "id", None)
    if isinstance(name, str):
        check_name(name, what="summary id")
        nodes = await handle.store.tree(record.id, record.tree).nodes([name])
        if not nodes or not _is_that(nodes[0], target):
            raise NotFoundError(f"session {record.id!r} has no summary {name!r}, or not this one")
        first, last = nodes[0].windows
        return f"{record.tree}/{name}/{first}-{last}"
    index = getattr(target, "index", None)
    if not isinstance(index, int) or isinstance(index, bool) or isinstance(target, (list, tuple)):
        raise UsageError(
            f"feedback got {type(target).__name__}; pass a summary, a hit, a message or an id"
        )
    if not 0 <= index < record.messages:
        raise NotFoundError(f"session {record.id!r} has no message {index}")
    return f"message/{index}"


def _is_that(node: Node, target: object) -> bool:
    """Return whether a node still covers what the caller's summary did.

    A bare id is accepted.
    """
    return getattr(target, "span", node.span) == node.span


def _scores(body: str) -> dict[str, Any]:
    """Read a record; a record that ``give_feedback`` did not write reads as empty."""
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
