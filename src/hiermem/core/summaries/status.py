"""Decides which status a node's generation may take next, and what else changes with it.

The life cycle of a node:

    from        to          by              when
    ----------  ----------  --------------  --------------------------------------------------
    pending     generating  claim           a run starts on it, a remote one under a lease
    generating  active      succeed         a fit text, or the stand-in, is committed
    generating  active      keep            no new text; the node keeps the text it has
    generating  active      keep_previous   as keep; the inputs are unchanged: dirty, forced end
    generating  failed      fail            no fit text
    generating  pending     expire, reset   the run released it, or its lease has ended
    failed      pending     reset           the next try
    active      pending     reset           a dirty, degraded or forced node gets a new text

Flags of an active node, which change no status:

    dirty     an input changed, or a new text was requested (mark_dirty, force); ends with a new
              text, or with clean if the inputs turn out to be unchanged. If an edit alone made it
              dirty (flag), ``since`` is None: its text serves, and it is not pending until
              somebody asks for it, or the policy says ``regenerate_on_edit``
    degraded  the text is the stand-in; the node is tried again
    forced    a new text was requested whatever the inputs are; ends as dirty does

Every change of a status is made here; a change that is not in the table is an
IllegalTransitionError. A change of status never removes the serving revision. ``write`` sets the
version, once for each stored change.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Final, Literal, TypeAlias

from hiermem.core.calls.lease import is_believed
from hiermem.errors import IllegalTransitionError
from hiermem.types import Node, Revision, Status
from hiermem.types.transaction import NodeTally, NodeWrite

_NEXT: Final[dict[Status, frozenset[Status]]] = {
    "pending": frozenset({"generating"}),
    "generating": frozenset({"active", "failed", "pending"}),
    "failed": frozenset({"pending"}),
    "active": frozenset({"pending"}),
}

#: A node as a run sees it: nothing to do, free to be made, or leased by another run.
Standing: TypeAlias = Literal["settled", "free", "leased"]


def standing(node: Node, *, now: datetime, owner: str = "") -> Standing:
    """Return the standing of ``node`` for the run ``owner``, whose own lease does not stop it."""
    if not waits(node) and not node.degraded:
        return "settled"
    if (
        node.status == "generating"
        and node.lease_owner != owner
        and node.lease_until is not None
        and is_believed(node.lease_until, now=now)
    ):
        return "leased"
    return "free"


def waits(node: Node) -> bool:
    """Return whether a node waits to be made: it has no text that serves, or a pending change.

    A node that an edit alone made dirty does not wait (``is_flagged``), nor does a clean stand-in:
    it serves, and the model is asked again when that is due. Whatever counts summaries "to be made"
    counts by this rule, or by ``waiting``.
    """
    return node.status != "active" or (node.dirty and not is_flagged(node))


def is_flagged(node: Node) -> bool:
    """Return whether an edit alone made a node dirty: its text serves until somebody asks."""
    return node.dirty and node.since is None


def waiting(tally: NodeTally) -> int:
    """Return how many of these nodes wait to be made, by the rule of ``waits``."""
    return tally.pending if tally.status == "active" else tally.count


def _move(node: Node, to: Status) -> Node:
    """Return ``node`` in the status ``to``; the lease ends with ``generating``."""
    if to not in _NEXT[node.status]:
        raise IllegalTransitionError(
            f"summary {node.id} is {node.status}; it cannot become {to}, only "
            f"{' or '.join(sorted(_NEXT[node.status]))}"
        )
    return replace(node, status=to, lease_owner=None, lease_until=None)


def reset(node: Node, *, now: datetime, owner: str = "") -> Node:
    """Return a free node to ``pending``: for a retry, a new text, or after an expired lease.

    Raises IllegalTransitionError where another run's lease on the node is still valid.
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
    """Release a node that was being generated without a result; no attempt is spent."""
    if node.status != "generating":
        raise IllegalTransitionError(f"summary {node.id} is {node.status}; nobody is making it")
    return _move(node, "pending")


def succeed(node: Node, revision: Revision, *, flagged: bool = False) -> Node:
    """Make ``revision`` the serving revision; ``flagged`` if a child's text is still flagged."""
    return replace(
        _move(node, "active"),
        revision=revision.number,
        attempts=node.attempts if revision.degraded else 0,
        error=node.error if revision.degraded else None,
        degraded=revision.degraded,
        dirty=flagged,
        forced=False,
        since=None,
    )


def fail(node: Node, *, error: str, attempts: int) -> Node:
    """Record that no fit text resulted; ``attempts`` is the number spent in all."""
    return replace(_move(node, "failed"), error=error, attempts=attempts)


def keep(node: Node, *, error: str | None) -> Node:
    """Keep the text that a node has, after no new text resulted."""
    if not node.revision:
        raise IllegalTransitionError(f"summary {node.id} has no text to go on with")
    return replace(_move(node, "active"), error=error)


def clean(node: Node, *, flagged: bool = False) -> Node:
    """Clear ``dirty`` on an active node whose inputs turned out to be unchanged.

    The node stays ``flagged`` if a child's text still is.
    """
    if node.status != "active":
        raise IllegalTransitionError(f"summary {node.id} is {node.status}; it is not made")
    return replace(node, dirty=flagged, forced=False, since=None)


def keep_previous(node: Node, *, error: str | None, flagged: bool = False) -> Node:
    """Keep a good text after a new one was requested for its own sake and none resulted.

    The inputs of the text did not change, so the text is as true as before (P7).
    """
    return replace(clean(keep(node, error=error), flagged=flagged), attempts=0)


def mark_dirty(node: Node, *, now: datetime) -> Node:
    """Mark a node whose input changed; its text serves until a new one is made."""
    return replace(node, dirty=True, since=node.since or now)


def flag(node: Node) -> Node:
    """Mark a node over an edited message, whose text serves until somebody asks for another."""
    return replace(node, dirty=True)


def force(node: Node, *, now: datetime) -> Node:
    """Request a new text for a made node, whatever its inputs are."""
    return replace(mark_dirty(node, now=now), forced=True, attempts=0)


def rebase(before: Node, current: Node, after: Node) -> Node | None:
    """Apply a change to the node that is stored now, or return None where it no longer applies.

    Between a read and its commit a node may get its parent, because its group was sealed, or a
    longer lease of the same owner. Neither affects the inputs of its text, and each is one write.
    A version that is further ahead was also raised by a write that does affect them, such as an
    edit.
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
    """Return whether ``after`` is stored, even if the write was reported as failed."""
    return replace(current, version=after.version, parent=after.parent) == after


def write(
    before: Node,
    after: Node,
    *,
    revision: Revision | None = None,
    inputs: tuple[tuple[str, int], ...] = (),
) -> NodeWrite:
    """Return the compare-and-swap write that turns ``before`` into ``after``."""
    return NodeWrite(
        node=replace(after, version=before.version + 1),
        expected=before.version,
        revision=revision,
        inputs=inputs,
    )
