"""Decides which status a node's generation may take next, and what else changes with it.

The life cycle of a node:

    from        to          by              when
    ----------  ----------  --------------  --------------------------------------------------
    pending     generating  claim           a run starts on it, a remote one under a lease
    generating  active      succeed         a fit text, or the stand-in, is committed
    generating  active      keep            no new text; the node keeps the one it has
    generating  failed      fail            no fit text
    generating  pending     expire, reset   the run released it, or its lease has ended
    failed      pending     reset           the next try
    active      pending     reset           a dirty, degraded or forced node gets a new text

Flags of an active node, which change no status:

    dirty     an input changed, or a new text was requested (mark_dirty, force); ends with a new
              text, or with clean where the inputs turn out to be unchanged
    stale     its text, or a child's, describes what an edit has changed; cleared with a new text
              once no child is stale
    degraded  the text is the stand-in; the node is tried again
    forced    a new text was requested whatever the inputs are

Every change of a status is made here; one that is not in the table is an IllegalTransitionError. A
change of status never removes the serving revision. ``write`` sets the version, once for each
stored change.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Final, Literal, TypeAlias

from hiermem.errors import IllegalTransitionError
from hiermem.types import Node, Revision, Status
from hiermem.types.transaction import NodeWrite

_NEXT: Final[dict[Status, frozenset[Status]]] = {
    "pending": frozenset({"generating"}),
    "generating": frozenset({"active", "failed", "pending"}),
    "failed": frozenset({"pending"}),
    "active": frozenset({"pending"}),
}

#: What a run sees in a node: nothing to do, free to be made, or in another run's hands.
Standing: TypeAlias = Literal["settled", "free", "leased"]


def standing(node: Node, *, now: datetime, owner: str = "") -> Standing:
    """Say what the run ``owner`` has to do with ``node``; its own lease does not stop it."""
    if node.status == "active" and not node.degraded and not node.dirty:
        return "settled"
    if (
        node.status == "generating"
        and node.lease_owner != owner
        and node.lease_until is not None
        and node.lease_until > now
    ):
        return "leased"
    return "free"


def _move(node: Node, to: Status) -> Node:
    """Return ``node`` the status ``to``; the lease does not outlive ``generating``."""
    if to not in _NEXT[node.status]:
        raise IllegalTransitionError(
            f"summary {node.id} is {node.status}; it cannot become {to}, only "
            f"{' or '.join(sorted(_NEXT[node.status]))}"
        )
    return replace(node, status=to, lease_owner=None, lease_until=None)


def reset(node: Node, *, now: datetime, owner: str = "") -> Node:
    """Bring a free node back to ``pending``: retry it, make it anew, or end a dead lease.

    Raises IllegalTransitionError where another run's lease on it is still good.
    """
    if node.status == "pending":
        return node
    if standing(node, now=now, owner=owner) == "leased":
        raise IllegalTransitionError(
            f"summary {node.id} is leased until {node.lease_until}; wait for it or for that time"
        )
    return _move(node, "pending")


def claim(node: Node, *, owner: str, until: datetime | None) -> Node:
    """Begin generating a pending node, under a lease where ``until`` is given."""
    return replace(
        _move(node, "generating"), lease_owner=owner if until else None, lease_until=until
    )


def expire(node: Node) -> Node:
    """Let go of a node that was being generated; nothing came of it and no attempt is spent."""
    if node.status != "generating":
        raise IllegalTransitionError(f"summary {node.id} is {node.status}; nobody is making it")
    return _move(node, "pending")


def succeed(node: Node, revision: Revision, *, stale: bool = False) -> Node:
    """Make ``revision`` the one that serves; ``stale`` where a child's text is flagged still."""
    return replace(
        _move(node, "active"),
        revision=revision.number,
        attempts=node.attempts if revision.degraded else 0,
        error=node.error if revision.degraded else None,
        degraded=revision.degraded,
        dirty=False,
        stale=stale,
        forced=False,
        since=None,
    )


def fail(node: Node, *, error: str, attempts: int) -> Node:
    """Record that nothing fit came out; ``attempts`` is how many were spent in all."""
    return replace(_move(node, "failed"), error=error, attempts=attempts)


def keep(node: Node, *, error: str | None) -> Node:
    """Go on with the text that a node has, after making it anew came to nothing."""
    if not node.revision:
        raise IllegalTransitionError(f"summary {node.id} has no text to go on with")
    return replace(_move(node, "active"), error=error)


def clean(node: Node, *, stale: bool = False) -> Node:
    """Take the dirt off an active node whose inputs turned out to be what they were.

    ``stale`` says that a child's text is flagged still; the flag goes where none is.
    """
    if node.status != "active":
        raise IllegalTransitionError(f"summary {node.id} is {node.status}; it is not made")
    return replace(node, dirty=False, stale=stale, forced=False, since=None)


def keep_previous(node: Node, *, error: str | None, stale: bool = False) -> Node:
    """Go on with a good text that was to be made anew for its own sake, and was not to be had.

    Nothing that it was made from changed, so it is no less true than before (P7).
    """
    return replace(clean(keep(node, error=error), stale=stale), attempts=0)


def mark_dirty(node: Node, *, now: datetime | None = None) -> Node:
    """Mark a node whose input changed; it goes on serving until it is made anew."""
    return replace(node, dirty=True, since=node.since or now)


def force(node: Node, *, now: datetime) -> Node:
    """Ask for a new text of a made node, whatever it is made from."""
    return replace(mark_dirty(node, now=now), forced=True, attempts=0)


def resize(before: Node, structure: Node) -> Node:
    """Return a provisional node its new extent; the text it has serves until a new one is made.

    Returns ``before`` itself where nothing of its structure changed.
    """
    now = replace(
        structure,
        status=before.status,
        revision=before.revision,
        version=before.version,
        attempts=before.attempts,
        error=before.error,
        degraded=before.degraded,
        dirty=before.dirty,
        stale=before.stale,
        forced=before.forced,
        since=before.since,
        lease_owner=before.lease_owner,
        lease_until=before.lease_until,
    )
    if now == before:
        return before
    return replace(
        now,
        status="pending",
        version=before.version + 1,
        attempts=0,
        dirty=False,
        lease_owner=None,
        lease_until=None,
    )


def rebase(before: Node, current: Node, after: Node) -> Node | None:
    """Carry a change over to what is stored now, or give None where it no longer applies.

    Between a read and its commit a node may be given its parent, because its group was sealed, or a
    longer lease of the same owner; neither touches what its text was made from. Each of the two is
    one write: a version that is further on was also raised by something that does, such as an edit.
    """
    harmless = (current.parent != before.parent) + (current.lease_until != before.lease_until)
    if current.version - before.version > harmless:
        return None
    same = replace(
        current,
        version=before.version,
        parent=before.parent,
        lease_until=before.lease_until,
    )
    return replace(after, parent=current.parent) if same == before else None


def is_written(current: Node, after: Node) -> bool:
    """Return whether ``after`` is what is stored, whoever reported the write as failed."""
    return replace(current, version=after.version, parent=after.parent) == after


def write(
    before: Node,
    after: Node,
    *,
    revision: Revision | None = None,
    inputs: tuple[tuple[str, int], ...] = (),
) -> NodeWrite:
    """Return the compare-and-swap that turns ``before`` into ``after``."""
    return NodeWrite(
        node=replace(after, version=before.version + 1),
        expected=before.version,
        revision=revision,
        inputs=inputs,
    )
