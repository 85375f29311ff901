"""Decides how one node gets its text: from which inputs, by whom, and what follows.

::

    inputs -> clean | copied word for word | reused | asked for -> made
                                                         |
                                                  no answer is fit -> stand-in | kept | failed

``make`` is the whole decision. It yields its requests and is sent each answer, or the error that
came instead; it returns an Outcome. An update answers from the store and the models. A dry run
drives the same decision to the first question to a model, and counts what asking would take. The
inputs may change while a model answers; ``levels.rebase`` decides at the commit what follows.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from hiermem import needs
from hiermem.calls.claim import ClaimLostError
from hiermem.config import HierarchyConfig, UpdatePolicy
from hiermem.errors import SpendLimitError
from hiermem.prompts.template import Length
from hiermem.protocols import LLM, TokenCounter
from hiermem.summaries import plan
from hiermem.summaries.assess import MOST_ANCHORS, PROMPTS, AttemptCount, Draft
from hiermem.summaries.inputs import Inputs, Labels, note_overlap, rebase, word_for_word
from hiermem.summaries.plan import Failure, LevelPlan
from hiermem.text import facts, units
from hiermem.text.measure import VERBATIM, output_hash
from hiermem.tree import status
from hiermem.types import Node, Revision
from hiermem.types.transaction import Attempt, Need

T = TypeVar("T")

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
class ReadInputs:
    """Read the inputs of ``node``.

    The answer is Inputs, or None if a text is missing.
    """

    node: Node


@dataclass(frozen=True, slots=True)
class LookUp:
    """Return a cached or in-flight text with this input hash that ``fits``.

    The answer is a Revision; if there is none, or ``fits`` is None, the AttemptCount.
    """

    input_hash: str
    fits: Callable[[Revision], bool] | None


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the model, at most ``prompts`` times; 0 asks for the extractive stand-in.

    The answer is a Draft; one from the model has passed the checks. UnfitError, SpendLimitError or
    ClaimLostError may come instead.
    """

    inputs: Inputs
    length: Length
    prompts: int = 0


@dataclass(frozen=True, slots=True)
class NoteAttempts:
    """Store what the calls add to ``count``, and their ``error``; None if the text was made.

    The answer is the new AttemptCount.
    """

    input_hash: str
    count: AttemptCount
    error: str | None = None


Request: TypeAlias = ReadInputs | LookUp | Ask | NoteAttempts | Need | Callable[[], Any]
#: The requests of a tuple are answered concurrently, and all answers are sent together.
Making: TypeAlias = Generator[Request | tuple[Request, ...], Any, T]


class UnfitError(Exception):
    """No answer of this run passed the checks, after ``attempts`` tries."""

    def __init__(self, kind: Failure, error: str, *, attempts: int = 0) -> None:
        super().__init__(error)
        self.kind: Failure = kind
        self.error = error
        self.attempts = attempts


class Settings(Protocol):
    """The settings of a run that apply to all of its nodes."""

    config: HierarchyConfig
    policy: UpdatePolicy
    counter: TokenCounter
    fallback: LLM

    @property
    def is_deterministic(self) -> bool:
        """Whether the model is the stand-in itself."""
        ...

    def time(self) -> datetime:
        """Return the present time."""
        ...

    def plan(self, level: int, model: LLM | None = None) -> LevelPlan:
        """Return how nodes of ``level`` are made, by the run's model or by ``model``."""
        ...

    def labels(self, inputs: Inputs) -> Labels:
        """Return the labels of a text of these inputs."""
        ...


@dataclass(frozen=True, slots=True)
class _Task:
    """A node to be made, with its inputs and its serving text.

    ``clean``: the serving text was made from these inputs. ``flagged``: an edit changed the
    messages below a child's text.
    """

    node: Node
    run: Settings
    inputs: Inputs
    serving: Revision | None
    clean: bool
    flagged: bool

    @property
    def generating(self) -> Node:
        """Return the node in status ``generating``."""
        return status.generate(status.reset(self.node))


def make(node: Node, run: Settings) -> Making[Outcome]:
    """Make the text of ``node``, or return why there is none."""
    inputs: Inputs | None = yield ReadInputs(node)
    if inputs is None:
        return Outcome("moved", node)
    revisions = yield from needs.revisions([(node.id, node.revision)] if node.revision else [])
    serving = revisions[0] if revisions else None
    follow = run.plan(node.level).strategies if run.policy.follow_strategy else ()
    clean = serving is not None and plan.is_clean(node, inputs, serving, follow=follow)
    below = (yield from needs.nodes(node.children)) if node.dirty else []
    flagged = any(map(status.is_flagged, below))
    task = _Task(node, run, inputs, serving, clean, flagged)
    if node.dirty and node.status == "active" and clean and not node.forced:
        return _clean(task)
    if node.verbatim or inputs.empty:
        copied: Revision = yield partial(copy, node, inputs, run)
        return _serve(task, "made", copied)
    return (yield from _reuse_or_ask(task))


def _reuse_or_ask(task: _Task) -> Making[Outcome]:
    """Reuse a text made from the same inputs, or ask the model if that is due.

    A node for which a new text was requested reuses none.
    """
    node, run = task.node, task.run
    wanted = plan.node_hash(node, task.inputs, run.plan(node.level).strategy)
    length = plan.lengths(node, task.inputs.tokens, run.config)
    fits = None if node.forced else partial(plan.may_reuse, length=length)
    reusable: Revision | AttemptCount = yield LookUp(wanted, fits)
    if isinstance(reusable, Revision):
        return _serve(task, "reused", _moved_here(task, reusable))
    if prompts := prompts_due(node, reusable, run):
        return (yield from _ask(task, wanted, length, prompts, reusable))
    if node.status == "active" and plan.is_stand_in_of(task.serving, node.level, task.inputs):
        return _clean(task)
    return (yield from _go_without(task, length, UnfitError("rejected", reusable.error), reusable))


def prompts_due(node: Node, count: AttemptCount, run: Settings) -> int:
    """Return how many prompts ``node`` may take now; a requested text may take all."""
    if node.forced or run.is_deterministic:
        return PROMPTS
    return count.prompts_due(run.time(), max_attempts=run.policy.max_attempts)


def _ask(
    task: _Task, wanted: str, length: Length, prompts: int, count: AttemptCount
) -> Making[Outcome]:
    """Ask the model for the text; count the attempts if no answer passes."""
    ask = Ask(task.inputs, length, prompts)
    try:
        draft, labels = yield ask, partial(task.run.labels, task.inputs)
    except (SpendLimitError, ClaimLostError) as error:
        yield NoteAttempts(wanted, count, count.error)
        return Outcome("refused" if isinstance(error, SpendLimitError) else "moved", task.node)
    except UnfitError as unfit:
        count = yield NoteAttempts(wanted, count, unfit.error)
        return (yield from _go_without(task, length, unfit, count))
    yield NoteAttempts(wanted, count)
    revision = _revision(task, draft, labels, task.run.plan(task.node.level), length)
    return _serve(task, "made", revision)


def _go_without(
    task: _Task, length: Length, unfit: UnfitError, count: AttemptCount
) -> Making[Outcome]:
    """Keep the node's stand-in, make one, or leave the node failed, depending on its attempts.

    For a requested text only the attempts of this run count.
    """
    node, run = task.node, task.run
    generating = replace(task.generating, error=unfit.error, attempts=count.count)
    if node.degraded and node.revision and not node.dirty:
        return Outcome("kept", node, status.keep(generating, error=unfit.error))
    tries = unfit.attempts if node.forced else count.count
    if plan.stand_in_is_due(unfit.kind, attempts=tries, policy=run.policy):
        if task.clean and node.forced:
            after = status.keep_previous(generating, error=unfit.error, flagged=task.flagged)
            return Outcome("failed", node, after)
        draft, labels = yield Ask(task.inputs, length), partial(run.labels, task.inputs)
        if draft.fit:
            level_plan = run.plan(node.level, run.fallback)
            revision = _revision(task, draft, labels, level_plan, length, degraded=True)
            return _serve(task, "degraded", revision, generating)
    after = status.fail(generating, error=unfit.error, attempts=count.count)
    return Outcome("failed", node, after)


def _clean(task: _Task) -> Outcome:
    """Return the outcome of a text that is still right."""
    return Outcome("clean", task.node, status.clean(task.node, flagged=task.flagged))


def _serve(
    task: _Task, kind: OutcomeKind, revision: Revision, generating: Node | None = None
) -> Outcome:
    """Return the outcome that makes ``revision`` serve."""
    serving = task.serving
    revision = note_overlap(
        revision,
        task.inputs,
        size=task.run.config.overlap,
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


def copy(node: Node, inputs: Inputs, run: Settings) -> Revision:
    """Return the revision that copies a node's inputs word for word; empty without inputs."""
    copied = word_for_word(inputs, count=run.counter.count)
    found = facts.find(copied.text, limit=MOST_ANCHORS)
    draft = Draft(copied.text, copied.tokens, copied.units, model="verbatim", anchors=found)
    level_plan = replace(run.plan(node.level), strategy=VERBATIM)
    task = _Task(node, run, inputs, None, clean=False, flagged=False)
    return _revision(task, draft, run.labels(inputs), level_plan)


def _moved_here(task: _Task, reusable: Revision) -> Revision:
    """Return an earlier text, moved to this node's position in the conversation.

    The cost of its calls stays with the node that it was made for.
    """
    node, base = task.node, reusable.extras.get("base")
    shift = node.span.start - base if isinstance(base, int) else 0
    return replace(
        reusable,
        node_id=node.id,
        number=node.revision + 1,
        created_at=task.run.time(),
        provenance=rebase(reusable.provenance, reusable.text, shift=shift, among=node.span),
        trust=task.inputs.trust,
        reused=True,
        extras={**reusable.extras, "base": node.span.start},
    )


def _revision(
    task: _Task,
    draft: Draft,
    labels: Labels,
    level_plan: LevelPlan,
    length: Length | None = None,
    *,
    degraded: bool = False,
) -> Revision:
    """Return the revision of an accepted draft; ``length`` is the requested one."""
    node, facts = task.node, draft.anchors
    return Revision(
        node_id=node.id,
        number=node.revision + 1,
        text=draft.text,
        tokens=draft.tokens,
        input_hash=plan.made_hash(node.level, level_plan.strategy, task.inputs),
        output_hash=output_hash(
            text=draft.text, anchors=facts, tags=labels.tags, entities=labels.entities
        ),
        strategy=level_plan.strategy,
        style=level_plan.style,
        model=draft.model or level_plan.model,
        created_at=task.run.time(),
        provenance=units.pack(draft.units) if draft.units else "",
        anchors=facts,
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
