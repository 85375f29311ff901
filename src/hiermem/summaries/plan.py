"""Decides how a node is made, how long its text is, and which text serves in the end.

::

    inputs -> clean | copied word for word | reused | asked for -> made
                                                         |
                                                  no answer is fit -> stand-in | kept | failed

Every choice is a function of values that were read before; ``node`` reads them and asks the models.
The inputs may change while a model answers; ``status.rebase`` decides at the commit what follows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Literal, TypeAlias

from hiermem.config import HierarchyConfig, UpdatePolicy
from hiermem.errors import ConfigError
from hiermem.needs import existing_session
from hiermem.prompts.template import Length, PromptTemplate
from hiermem.summaries.assess import MOST_ANCHORS, Draft
from hiermem.summaries.inputs import Inputs, Labels, note_overlap, of_inputs, rebase, word_for_word
from hiermem.text import facts, units
from hiermem.text.measure import VERBATIM, input_hash, output_hash, strategy_hash
from hiermem.tree import status
from hiermem.tree.fold import SessionState
from hiermem.tree.levels import weigh
from hiermem.types import Node, Revision
from hiermem.types.transaction import Attempt, Batch, Changes, Deciding, NeedLevel

_NO_LENGTH: Final = Length(0, 0)
#: Nodes read together.
_PAGE: Final = 512
#: Inputs are not cut into smaller pieces than this, which would say nothing one by one.
_LEAST_ROOM: Final = 64
#: More tokens than this are not copied word for word where a node weighs less.
_SMALL: Final = 200
#: A window, in tokens, with which most records are read in one request.
_GOOD_WINDOW: Final = 8_192
#: The hard limit of an answer, as a multiple of the requested length.
_HARD_RATIO: Final = 1.5
#: The most that a text of texts keeps of them.
_MOST_OF_TEXTS: Final = 0.5
#: The fewest tokens by which an answer may be longer than requested.
_HEADINGS_ROOM: Final = 80
#: The share of the allotted length that a style asks for, if not all of it.
_OF_ALLOTTED: Final[Mapping[str, float]] = {"concise": 0.6}
#: A plan's assumptions: seconds of a remote call, and tokens per second of local work.
_REMOTE_SECONDS: Final = 4.0
_LOCAL_TOKENS: Final = 250_000


@dataclass(frozen=True, slots=True)
class LevelPlan:
    """The plan of all nodes of one level: the prompt, the model, the strategy hash."""

    template: PromptTemplate
    style: str
    ratio: float
    strategy: str
    model: str

    @property
    def strategies(self) -> tuple[str, str]:
        """Return the strategies of current texts: this one, and the copy word for word."""
        return self.strategy, VERBATIM


def level_plan(
    level: int, template: PromptTemplate, *, config: HierarchyConfig, model: str, counter: str
) -> LevelPlan:
    """Return the plan by which nodes of ``level`` are made.

    The strategy includes the lengths of all levels below, because they decide the allotted sizes
    here, and for level 1 the size of the overlap with the window before.
    """
    settings = config.level(level)
    measures: list[object] = [config.unit, config.verbatim_tokens, config.ratio_only]
    if level == 1:
        measures.append(config.overlap)
    for number in range(1, level + 1):
        below = config.level(number)
        measures += [below.target_ratio, below.floor, below.cap]
    return LevelPlan(
        template=template,
        style=settings.style,
        ratio=settings.target_ratio * _OF_ALLOTTED.get(settings.style, 1.0),
        strategy=strategy_hash(
            template=template.identity,
            style=settings.style,
            lengths=measures,
            temperature=config.temperature,
            model=model,
            counter=counter,
        ),
        model=model,
    )


def is_copied(node: Node, tokens: int) -> bool:
    """Return whether a node's text is its inputs, of so many tokens, word for word.

    After an edit a node may weigh little while the texts below it are still the longer ones (P8).
    """
    return node.verbatim and tokens <= max(node.input_tokens, _SMALL)


def node_hash(node: Node, inputs: Inputs, strategy: str) -> str:
    """Return the present input hash of ``node``, made by ``strategy``."""
    return made_hash(node.level, VERBATIM if is_copied(node, inputs.tokens) else strategy, inputs)


def made_hash(level: int, strategy: str, inputs: Inputs) -> str:
    """Return the input hash of a text made of ``inputs`` by ``strategy``.

    A verbatim text does not depend on the overlap, because it does not use it.
    """
    overlap = "" if strategy == VERBATIM else inputs.overlap
    return input_hash(level=level, strategy=strategy, outputs=inputs.outputs, overlap=overlap)


def is_clean(node: Node, inputs: Inputs, serving: Revision, *, follow: Sequence[str] = ()) -> bool:
    """Return whether a dirty node's text was made from these very inputs.

    They are compared under the recorded strategy: another model's name alone makes nothing dirty.
    If the policy is to ``follow`` the present strategies, the recorded strategy must be among them.
    """
    if follow and serving.strategy not in follow:
        return False
    present = made_hash(node.level, serving.strategy, inputs)
    return present == serving.input_hash and not serving.degraded


def is_stand_in_of(serving: Revision | None, level: int, inputs: Inputs) -> bool:
    """Return whether a text is the stand-in that would be extracted from these inputs."""
    if serving is None or not serving.degraded:
        return False
    return made_hash(level, serving.strategy, inputs) == serving.input_hash


def lengths(node: Node, tokens: int, config: HierarchyConfig) -> Length:
    """Return the length to request and the hard limit, for inputs of ``tokens``.

    The length is the allotted one; 0.6 of it if the text is concise, whose node weighs as much as a
    detailed one: the structure does not depend on a style. It is less than the actual inputs (P8).
    Of children's texts, which may be much shorter than their allotted size, at most half is kept,
    unless the ratio is higher. Inputs of at most ``verbatim_tokens`` may keep their length. The
    limit leaves a short text room for its headings.
    """
    level, most = config.level(node.level), tokens - (tokens > config.verbatim_tokens)
    target = int(_OF_ALLOTTED.get(level.style, 1.0) * _allotted(node, tokens, config))
    if node.children and most < tokens:
        target = min(target, int(max(_MOST_OF_TEXTS, level.target_ratio) * tokens))
    target = max(1, min(target, most))
    limit = max(math.ceil(_HARD_RATIO * target), target + _HEADINGS_ROOM)
    return Length(target, max(1, min(limit, most)))


def _allotted(node: Node, tokens: int, config: HierarchyConfig) -> int:
    """Return the tokens that ``config`` allots to a node with inputs of ``tokens``.

    They are those it was sealed with, unless the ratio changed since then. A new text takes the new
    ratio, while the weight of the node in the structure does not change.
    """
    if node.verbatim and not is_copied(node, tokens):
        return int(config.level(node.level).target_ratio * tokens)
    if node.verbatim or node.unit != config.unit:
        return node.allotted_tokens
    allotted = weigh(config.level(node.level), node.input_size)
    if allotted == node.allotted:
        return node.allotted_tokens
    return max(1, node.input_tokens * allotted // max(1, node.input_size))


def may_reuse(revision: Revision, length: Length) -> bool:
    """Return whether a text made elsewhere from the same inputs fits here as well.

    If its requested length is known, it must be the same; if it differs, the equal inputs were
    sealed under another configuration.
    """
    made_for = revision.extras.get("target", length.target)
    return revision.tokens <= length.limit and made_for == length.target


def room_for_inputs(window: int | None, *, inputs: int, answer: int, prompt: int) -> int | None:
    """Return the tokens that inputs may take at once in a model's ``window``; None is no limit.

    An excerpt of the ``inputs`` is answered with its share of the whole ``answer``, so a request
    grows by both together; an answer no longer than its inputs takes at most half of the room.
    Raises ConfigError if the window has no room for the smallest piece and its answer.
    """
    if window is None:
        return None
    free = window - prompt
    if free < 2 * _LEAST_ROOM:
        least = prompt + 2 * _LEAST_ROOM
        raise ConfigError(
            f"context_window {window:,} is too small for the prompt's {prompt:,} tokens; use "
            f"at least {least:,}, better {_GOOD_WINDOW:,}"
        )
    share = inputs / (inputs + min(answer, inputs)) if inputs else 0.5
    return math.floor(free * share)


def shortened(length: Length, *, shown: int, of: int) -> Length:
    """Return the share of a length for ``shown`` tokens ``of`` all inputs.

    A text is smaller than its inputs (P8).
    """
    if shown >= of:
        return length
    most = max(1, min(length.limit * shown // of, shown - 1))
    return Length(max(1, min(length.target * shown // of, most)), most)


Failure: TypeAlias = Literal["rejected", "transient", "permanent"]


def stand_in_is_due(kind: Failure, *, attempts: int, policy: UpdatePolicy) -> bool:
    """Return whether a failure after ``attempts`` tries calls for the stand-in.

    A permanent failure does at once, because the same call would fail again.
    """
    return kind == "permanent" or attempts >= policy.max_attempts


def seconds(calls: int, tokens: int, policy: UpdatePolicy, *, remote: bool) -> float:
    """Estimate the seconds of ``calls`` within the limits per minute."""
    if not remote:
        return tokens / _LOCAL_TOKENS
    waves = math.ceil(calls / policy.concurrency)
    in_waves = waves * _REMOTE_SECONDS + max(0, waves - 1) * policy.batch_delay
    # What a minute allows goes at once, the rest at that rate.
    per_minute = ((calls, policy.requests_per_minute), (tokens, policy.tokens_per_minute))
    return max([in_waves, *(60 * (many / most - 1) for many, most in per_minute if most)])


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
        after, may_clear = self.after, self.node.dirty and not self.changes_parent
        return may_clear and after is not None and after.status == "active" and not after.dirty


@dataclass(frozen=True, slots=True)
class NodeTask:
    """A node to be made, with its inputs and its serving text.

    ``clean``: the serving text was made from these inputs. ``flagged``: an edit changed the
    messages below a child's text. ``wanted`` is the present input hash, ``length`` is to be asked
    for; a copy has neither. ``overlap`` is the configured one.
    """

    node: Node
    inputs: Inputs
    serving: Revision | None = None
    clean: bool = False
    flagged: bool = False
    wanted: str = ""
    length: Length = _NO_LENGTH
    overlap: int = 0


def is_right(task: NodeTask) -> bool:
    """Return whether the text of a dirty node is still right."""
    node = task.node
    return node.dirty and node.status == "active" and task.clean and not node.forced


def clean(task: NodeTask) -> Outcome:
    """Return the outcome of a text that is still right."""
    return Outcome("clean", task.node, status.clean(task.node, flagged=task.flagged))


def serve(
    task: NodeTask, kind: OutcomeKind, revision: Revision, tried: Node | None = None
) -> Outcome:
    """Return the outcome that makes ``revision`` serve; ``tried`` has the failed attempts."""
    serving = task.serving
    revision = note_overlap(
        revision,
        task.inputs,
        size=task.overlap,
        verbatim=revision.strategy == VERBATIM,
        before=serving,
    )
    return Outcome(
        kind,
        task.node,
        status.succeed(tried or task.node, revision, flagged=task.flagged),
        revision,
        inputs=task.inputs.serving,
        changes_parent=serving is not None and serving.output_hash != revision.output_hash,
    )


def go_without(task: NodeTask, tried: Node, *, stand_in_is_due: bool) -> Outcome | None:
    """Return the outcome of a node for which no text resulted; None if a stand-in is to be made.

    ``tried`` is the node with its failed attempts.
    """
    node = task.node
    if node.degraded and node.revision and not node.dirty:
        return Outcome("kept", node, replace(tried, status="active"))
    if not stand_in_is_due:
        return failed(node, tried)
    if task.clean and node.forced:
        # The inputs of the text did not change, so it is as true as before (P7).
        kept = replace(tried, status="active", attempts=0)
        return Outcome("failed", node, status.clean(kept, flagged=task.flagged))
    return None


def failed(node: Node, tried: Node) -> Outcome:
    """Return the outcome of a node that has no fit text."""
    return Outcome("failed", node, replace(tried, status="failed"))


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
    *,
    now: datetime,
    degraded: bool = False,
) -> Revision:
    """Return the revision of an accepted draft."""
    node, anchors, (tags, entities) = task.node, draft.anchors, labels
    return Revision(
        node_id=node.id,
        number=node.revision + 1,
        text=draft.text,
        tokens=draft.tokens,
        input_hash=made_hash(node.level, how.strategy, task.inputs),
        output_hash=output_hash(text=draft.text, anchors=anchors, tags=tags, entities=entities),
        strategy=how.strategy,
        style=how.style,
        model=draft.model or how.model,
        created_at=now,
        provenance=units.pack(draft.units) if draft.units else "",
        anchors=anchors,
        tags=tags,
        entities=entities,
        fidelity=draft.fidelity,
        unsupported=draft.unsupported,
        trust=task.inputs.trust,
        degraded=degraded,
        extras={"base": node.span.start}
        | ({"target": task.length.target} if task.wanted else {})
        | ({"shortened": True} if draft.shortened else {}),
    )


def recompress(
    session_id: str, *, level: int, span: tuple[int, int] | None, now: datetime
) -> Deciding[tuple[str, ...]]:
    """Request new texts for the made nodes of ``level`` over the messages of ``span``, or for all.

    Returns their ids. A node without a text will be made anyway. Raises NotFoundError.
    """
    record = yield from existing_session(session_id)
    start, stop = (0, record.messages) if span is None else span
    count = SessionState.from_json(record.state).next_ordinal(level) if start < stop else 0
    marked: list[Node] = []
    for first in range(0, count, _PAGE):
        page: list[Node] = yield session_id, NeedLevel(level, first, min(count, first + _PAGE))
        marked += [
            replace(status.force(node, now=now), version=node.version + 1)
            for node in page
            if node.revision and node.span.start < stop and start < node.span.stop
        ]
    ids = tuple(node.id for node in marked)
    if not marked:
        return Batch(ids)
    after = replace(record, version=record.version + 1)
    changes: Changes[None] = Changes(None, session=after, nodes=tuple(marked))
    return Batch(ids, ((session_id, changes),))
