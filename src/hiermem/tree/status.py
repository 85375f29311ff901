"""Decides which status a node takes when its text was made, or was not, and what else changes.

The life cycle of a node:

    pending, failed   active   a fit text, or the fallback, is committed (succeed)
    active            active   a dirty, degraded or forced node gets a new text (succeed), or keeps
                               the text it has
    any               failed   no fit text

Flags of an active node, which change no status:

    dirty     an input changed, or a new text was requested (mark_dirty, force); ends with a new
              text, or with clean if the inputs turn out to be unchanged. If an edit alone made it
              dirty (flag), ``since`` is None: its text serves, and it is not pending until
              somebody asks for it, or the policy says ``regenerate_on_edit``
    degraded  the text is the fallback; the node is tried again
    forced    a new text was requested whatever the inputs are; ends as dirty does

What is stored of a node is what became of it: a pending one under a session's claim is shown as
generating. A change of status never removes the serving revision. ``write`` sets the version, once
for each stored change.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from hiermem.types import Node, Revision
from hiermem.types.transaction import NodeTally, NodeWrite


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


def succeed(node: Node, revision: Revision, *, flagged: bool = False) -> Node:
    """Make ``revision`` the serving revision; ``flagged`` if a child's text is still flagged."""
    return replace(
        node,
        status="active",
        revision=revision.number,
        attempts=node.attempts if revision.degraded else 0,
        error=node.error if revision.degraded else None,
        degraded=revision.degraded,
        dirty=flagged,
        forced=False,
        since=None,
    )


def clean(node: Node, *, flagged: bool = False) -> Node:
    """Clear ``dirty`` on an active node whose inputs turned out to be unchanged.

    The node stays ``flagged`` if a child's text still is.
    """
    return replace(node, dirty=flagged, forced=False, since=None)


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
