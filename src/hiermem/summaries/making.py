"""Decides what becomes of a node: which text serves in the end, and how its status changes.

::

    inputs -> clean | copied word for word | reused | asked for -> made
                                                         |
                                                  no answer is fit -> stand-in | kept | failed

``node`` reads the inputs and asks the models. The inputs may change while a model answers;
``status.rebase`` decides at the commit what follows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, TypeAlias

from hiermem.prompts.template import Length
from hiermem.summaries.assess import MOST_ANCHORS, Draft
from hiermem.summaries.inputs import Inputs, Labels, note_overlap, of_inputs, rebase, word_for_word
from hiermem.summaries.plan import LevelPlan, made_hash
from hiermem.text import facts, units
from hiermem.text.measure import VERBATIM, output_hash
from hiermem.tree import status
from hiermem.types import Node, Revision
from hiermem.types.transaction import Attempt

OutcomeKind: TypeAlias = Literal[
    "made", "reused", "degraded", "kept", "clean", "failed", "refused", "moved"
]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one node, not committed yet.

    ``node`` is the node before the change. The kinds:

        made, reused   a good text
        degraded       the stand-in
        kept           the node keeps its stand-in
        clean          the node was dirty, but its text is still right
        failed         nothing new
        refused        a cap was met
        moved          the node changed while it was read, or the claim was lost

    ``attempts`` are its calls. ``changes_parent``: the text differs from the one that the parent
    was made from.
    """

    kind: OutcomeKind
    node: Node
    after: Node | None = None
    revision: Revision | None = None
    inputs: tuple[tuple[str, int], ...] = ()
    attempts: tuple[Attempt, ...] = ()
    changes_parent: bool = False

    @property
    def clears_parent(self) -> bool:
        """Return whether a flag of this node was cleared, so that its parent's may be obsolete."""
        after = self.after
        return (
            self.node.dirty
            and not self.changes_parent
            and after is not None
            and after.status == "active"
            and not after.dirty
        )


@dataclass(frozen=True, slots=True)
class NodeTask:
    """A node to be made, with its inputs and its serving text.

    ``clean``: the serving text was made from these inputs. ``flagged``: an edit changed the
    messages below a child's text.
    """

    node: Node
    inputs: Inputs
    serving: Revision | None = None
    clean: bool = False
    flagged: bool = False

    @property
    def generating(self) -> Node:
        """Return the node in status ``generating``."""
        return status.generate(status.reset(self.node))


def is_right(task: NodeTask) -> bool:
    """Return whether the text of a dirty node is still right."""
    node = task.node
    return node.dirty and node.status == "active" and task.clean and not node.forced


def clean(task: NodeTask) -> Outcome:
    """Return the outcome of a text that is still right."""
    return Outcome("clean", task.node, status.clean(task.node, flagged=task.flagged))


def serve(
    task: NodeTask,
    kind: OutcomeKind,
    revision: Revision,
    *,
    overlap: int,
    generating: Node | None = None,
) -> Outcome:
    """Return the outcome that makes ``revision`` serve; ``overlap`` is the configured one."""
    serving = task.serving
    revision = note_overlap(
        revision,
        task.inputs,
        size=overlap,
        verbatim=revision.strategy == VERBATIM,
        before=serving,
    )
    return Outcome(
        kind,
        task.node,
        status.succeed(generating or task.generating, revision, flagged=task.flagged),
        revision,
        inputs=task.inputs.serving,
        changes_parent=serving is not None and serving.output_hash != revision.output_hash,
    )


def go_without(
    task: NodeTask, generating: Node, error: str, *, stand_in_is_due: bool
) -> Outcome | None:
    """Return the outcome of a node for which no text resulted; None if a stand-in is to be made."""
    node = task.node
    if node.degraded and node.revision and not node.dirty:
        return Outcome("kept", node, status.keep(generating, error=error))
    if not stand_in_is_due:
        return failed(node, generating, error)
    if task.clean and node.forced:
        after = status.keep_previous(generating, error=error, flagged=task.flagged)
        return Outcome("failed", node, after)
    return None


def failed(node: Node, generating: Node, error: str) -> Outcome:
    """Return the outcome of a node that has no fit text."""
    after = status.fail(generating, error=error, attempts=generating.attempts)
    return Outcome("failed", node, after)


def copy(
    node: Node, inputs: Inputs, how: LevelPlan, *, count: Callable[[str], int], now: datetime
) -> Revision:
    """Return the revision that copies a node's inputs word for word; empty without inputs."""
    copied = word_for_word(inputs, count=count)
    anchors = facts.find(copied.text, limit=MOST_ANCHORS)
    draft = Draft(copied.text, copied.tokens, copied.units, model="verbatim", anchors=anchors)
    how = replace(how, strategy=VERBATIM)
    return revision_of(NodeTask(node, inputs), draft, of_inputs(inputs), how, now=now)


def moved_here(task: NodeTask, reusable: Revision, *, now: datetime) -> Revision:
    """Return an earlier text, moved to this node's position in the conversation.

    The cost of its calls stays with the node that it was made for.
    """
    node, base = task.node, reusable.extras.get("base")
    shift = node.span.start - base if isinstance(base, int) else 0
    return replace(
        reusable,
        node_id=node.id,
        number=node.revision + 1,
        created_at=now,
        provenance=rebase(reusable.provenance, reusable.text, shift=shift, among=node.span),
        trust=task.inputs.trust,
        reused=True,
        calls=0,
        tokens_in=0,
        tokens_out=0,
        duration_ms=0,
        extras={**reusable.extras, "base": node.span.start},
    )


def revision_of(
    task: NodeTask,
    draft: Draft,
    labels: Labels,
    how: LevelPlan,
    length: Length | None = None,
    *,
    now: datetime,
    degraded: bool = False,
) -> Revision:
    """Return the revision of an accepted draft; ``length`` is the requested one."""
    node, anchors = task.node, draft.anchors
    return Revision(
        node_id=node.id,
        number=node.revision + 1,
        text=draft.text,
        tokens=draft.tokens,
        input_hash=made_hash(node.level, how.strategy, task.inputs),
        output_hash=output_hash(
            text=draft.text, anchors=anchors, tags=labels.tags, entities=labels.entities
        ),
        strategy=how.strategy,
        style=how.style,
        model=draft.model or how.model,
        created_at=now,
        provenance=units.pack(draft.units) if draft.units else "",
        anchors=anchors,
        tags=labels.tags,
        entities=labels.entities,
        fidelity=draft.fidelity,
        unsupported=draft.unsupported,
        trust=task.inputs.trust,
        degraded=degraded,
        extras={"base": node.span.start}
        | ({"target": length.target} if length else {})
        | ({"shortened": True} if draft.shortened else {}),
    )
