"""Decides which status a node's generation may take next, and what else changes with it.

The life cycle of a node:

    from        to          by              when
    ----------  ----------  --------------  --------------------------------------------------
    pending     generating  generate        a run begins to make its text
    generating  active      succeed         a fit text, or the fallback, is committed
    generating  active      keep            no new text; the node keeps the text it has
    generating  active      keep_previous   as keep; the inputs are unchanged: dirty, forced end
    generating  failed      fail            no fit text
    failed      pending     reset           the next try
    active      pending     reset           a dirty, degraded or forced node gets a new text

Flags of an active node, which change no status:

    dirty     an input changed, or a new text was requested (mark_dirty, force); ends with a new
              text, or with clean if the inputs turn out to be unchanged. If an edit alone made it
              dirty (flag), ``since`` is None: its text serves, and it is not pending until
              somebody asks for it, or the policy says ``regenerate_on_edit``
    degraded  the text is the fallback; the node is tried again
    forced    a new text was requested whatever the inputs are; ends as dirty does

A node is generating within one run only: what is stored is what became of it. Which run may make a
session's texts, the claim on the session says.

Every change of a status is made here; a change that is not in the table is an
UsageError. A change of status never removes the serving revision. ``write`` sets the
version, once for each stored change.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Final

from hiermem.errors import UsageError
from hiermem.types import Node, Revision, Status
from hiermem.types.transaction import NodeTally, NodeWrite

_NEXT: Final[dict[Status, frozenset[Status]]] = {
    "pending": frozenset({"generating"}),
    "generating": frozenset({"active", "failed", "pending"}),
    "failed": frozenset({"pending"}),
    "active": frozenset({"pending"}),
}


def is_unfinished(node: Node) -> bool:
    """Return whether an update may make ``node``: it waits, or has only the stand-in."""
    return waits(node) or node.degraded


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
    """Return ``node`` in the status ``to``."""
    if to not in _NEXT[node.status]:
        raise UsageError(
            f"summary {node.id} is {node.status}; it cannot become {to}, only "
            f"{' or '.join(sorted(_NEXT[node.status]))}"
        )
    return replace(node, status=to)


def reset(node: Node) -> Node:
    """Return a node to ``pending``: for a retry, or a new text."""
    return node if node.status == "pending" else _move(node, "pending")


def generate(node: Node) -> Node:
    """Begin to make a pending node."""
    return _move(node, "generating")


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
        raise UsageError(f"summary {node.id} has no text; update() makes one")
    return replace(_move(node, "active"), error=error)


def clean(node: Node, *, flagged: bool = False) -> Node:
    """Clear ``dirty`` on an active node whose inputs turned out to be unchanged.

    The node stays ``flagged`` if a child's text still is.
    """
    if node.status != "active":
        raise UsageError(f"summary {node.id} is {node.status}; update() makes it first")
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

    Between a read and its commit a node may get its parent, because its group was sealed. That does
    not affect the inputs of its text, and is one write. A version that is further ahead was also
    raised by a write that does affect them, such as an edit.
    """
    if current.version - before.version > (current.parent != before.parent):
        return None
    same = replace(current, version=before.version, parent=before.parent)
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
