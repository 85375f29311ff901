"""Makes the text of one node: copied verbatim, reused, asked of a model, or made by the stand-in.

::

    inputs -> verbatim | reused | prompt -> stricter prompt -> windows below
           -> failed -> stand-in

Nothing is committed and nothing is decided here. The module reads the inputs, asks ``core`` what
follows, and returns an Outcome for ``NodeCommits``. An answer with a hard problem never gets into
an Outcome.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace

from hiermem.core.log.overlap import noted
from hiermem.core.search import labels
from hiermem.core.search.labels import Labels
from hiermem.core.summaries import plan, status
from hiermem.core.summaries.assess import MOST_ANCHORS, Draft
from hiermem.core.summaries.inputs import Inputs, Verbatim, rebase, word_for_word
from hiermem.core.summaries.judge import assess_answer
from hiermem.core.summaries.plan import LevelPlan
from hiermem.core.summaries.retries import AttemptCount
from hiermem.core.text import anchors, units
from hiermem.core.text.hashes import VERBATIM, output_hash
from hiermem.engine.calls.in_flight import PendingText
from hiermem.engine.calls.run import CallState, ClaimLostError
from hiermem.engine.summaries.ask import NodeTask, UnfitError, compose, request_for, standard_of
from hiermem.engine.summaries.commit import Outcome, OutcomeKind
from hiermem.engine.summaries.retries import (
    count_attempts,
    forget_failures,
    note_failure,
    prompts_due,
)
from hiermem.engine.summaries.run import UpdateRun, read_inputs, read_serving
from hiermem.errors import SpendLimitError
from hiermem.types import Node, Revision


async def make(run: UpdateRun, node: Node) -> Outcome:
    """Make the text of ``node``, or return why there is none. Commits nothing.

    Raises what the store raises.
    """
    standing_ = status.standing(node, now=run.now(), owner=run.run_id)
    if standing_ == "leased":
        return Outcome("leased", node)
    inputs = await read_inputs(run, node)
    if inputs is None:
        return Outcome("moved", node)
    serving = await read_serving(run, node)
    clean = serving is not None and run.is_clean(node, inputs, serving)
    stale = node.stale and await _is_flagged_below(run, node)
    if node.dirty and node.status == "active" and clean and not node.forced:
        # A provisional node is only treated as dirty; nothing about it has to be written.
        after = status.clean(node, stale=stale) if node.sealed else None
        return Outcome("clean", node, after=after)
    length = plan.lengths(
        node,
        inputs.tokens,
        hard_ratio=run.policy.hard_ratio,
        config=run.config,
    )
    task = NodeTask(
        run,
        CallState(node, inputs.tokens),
        inputs,
        run.plan(node.level),
        length,
        serving,
        clean=clean,
        stale=stale,
    )
    if node.verbatim or not inputs.sources:
        revision = verbatim_revision(node, inputs, run.plan(node.level), count=run.counter.count)
        return _outcome(task, "made", replace(revision, created_at=run.now()))
    return await _reuse_or_make(task)


async def _is_flagged_below(run: UpdateRun, node: Node) -> bool:
    """Return whether a child's text is flagged as stale, so that this node's is stale too."""
    return any(child.stale for child in await run.tree.nodes(node.children))


def verbatim_revision(
    node: Node, inputs: Inputs, level_plan: LevelPlan, *, count: Callable[[str], int]
) -> Revision:
    """Return the revision of a node that copies its inputs verbatim, or that has none."""
    copied = word_for_word(inputs, count=count) if inputs.sources else Verbatim("", 0, "")
    found = anchors.find(copied.text, limit=MOST_ANCHORS)
    node_labels = labels.of_inputs(inputs)
    return Revision(
        node_id=node.id,
        number=node.revision + 1,
        text=copied.text,
        tokens=copied.tokens,
        input_hash=plan.made_hash(node.level, VERBATIM, inputs),
        output_hash=output_hash(
            text=copied.text, anchors=found, tags=node_labels.tags, entities=node_labels.entities
        ),
        strategy=VERBATIM,
        style=level_plan.style,
        model="verbatim",
        created_at=node.last_at,
        provenance=copied.provenance,
        anchors=found,
        tags=node_labels.tags,
        entities=node_labels.entities,
        trust=inputs.trust,
        extras={"base": node.span.start},
    )


async def _reuse_or_make(task: NodeTask) -> Outcome:
    """Reuse a text made from the same inputs, await one that is being made, or make it.

    A node for which a new text was requested reuses none.
    """
    run, wanted = task.run, plan.node_hash(task.node, task.inputs, task.plan.strategy)
    if task.node.forced:
        return await _compose_or_stand_in(task, wanted)
    unfit: PendingText | None = None
    while (others := run.shared.in_flight.get(wanted)) is not None and others is not unfit:
        with run.mark_waiting():
            await asyncio.wait([others], timeout=run.budget.time_left())
        found = others.result() if others.done() else None
        if found is not None and plan.may_reuse(found, task.length):
            return _reuse(task, found)
        unfit = others
    # Begun before the store is asked: otherwise two runs that find nothing there would both ask the
    # model.
    mine = run.begin_text(wanted)
    result: Revision | None = None
    uncommitted = False
    try:
        before = await run.store.reusable(wanted)
        if before is not None and plan.may_reuse(before, task.length):
            result = before
            return _reuse(task, before)
        outcome = await _compose_or_stand_in(task, wanted, afresh=unfit is not None)
        if outcome.kind == "made":
            result, uncommitted = outcome.revision, True
        return outcome
    finally:
        mine.set_result(result)
        if not uncommitted and run.pending_texts.get(wanted) is mine:
            run.drop_text(wanted)


def _reuse(task: NodeTask, found: Revision) -> Outcome:
    """Serve a text that was made before, moved to this node's place in the conversation."""
    node = task.node
    base = found.extras.get("base")
    shift = node.span.start - base if isinstance(base, int) else 0
    provenance = rebase(found.provenance, found.text, shift=shift, among=node.span)
    revision = Revision(
        node_id=node.id,
        number=node.revision + 1,
        text=found.text,
        tokens=found.tokens,
        input_hash=found.input_hash,
        output_hash=found.output_hash,
        strategy=found.strategy,
        style=found.style,
        model=found.model,
        created_at=task.run.now(),
        provenance=provenance,
        anchors=found.anchors,
        tags=found.tags,
        entities=found.entities,
        fidelity=found.fidelity,
        unsupported=found.unsupported,
        trust=task.inputs.trust,
        reused=True,
        extras={**found.extras, "base": node.span.start},
    )
    return _outcome(task, "reused", revision)


async def _compose_or_stand_in(task: NodeTask, wanted: str, *, afresh: bool = False) -> Outcome:
    """Ask the model if that is due; where no answer is fit, count the attempts.

    What is returned then is the stand-in, if the attempts are spent. ``afresh``: another run has
    asked for the same text just now.
    """
    run, state = task.run, task.state
    count = await count_attempts(run, wanted, afresh=afresh)
    prompts = prompts_due(run, task.node, count)
    if not prompts:
        node = task.node
        if node.status == "active" and plan.is_stand_in_of(task.serving, node.level, task.inputs):
            after = status.clean(node, stale=task.stale) if node.sealed else None
            return Outcome("clean", node, after=after)
        found = await run.compute(labels.of_inputs, task.inputs)
        return await _after_failure(task, UnfitError("rejected", count.error), count, found)
    # Read while the model answers.
    node_labels = run.spawn(run.compute(labels.of_inputs, task.inputs))
    try:
        draft = await compose(replace(task, prompts=prompts))
    except SpendLimitError:
        await note_failure(run, wanted, count, state, count.error)
        await run.commits.give_back(task.node.id, state.ended)
        return Outcome("refused", task.node)
    except ClaimLostError:
        await note_failure(run, wanted, count, state, count.error)
        return Outcome("moved", task.node, attempts=tuple(state.ended))
    except UnfitError as unfit:
        count = await note_failure(run, wanted, count, state, unfit.error)
        return await _after_failure(task, unfit, count, await node_labels)
    await forget_failures(run, wanted, count)
    revision = _revision(task, draft, await node_labels, wanted=wanted, level_plan=task.plan)
    return _outcome(task, "made", revision)


async def _after_failure(
    task: NodeTask, unfit: UnfitError, count: AttemptCount, node_labels: Labels
) -> Outcome:
    """Leave the node failed, keep its stand-in, or make one, after so many attempts at its text.

    A text on request has the attempts of this run only: those before did not count against it.
    """
    node, run = task.node, task.run
    working = _as_generating(task)
    spent = task.state.attempts if node.forced else count.count
    stand_in_due = plan.stand_in_is_due(unfit.kind, attempts=spent, policy=run.policy)
    if node.degraded and node.revision and not node.dirty:
        after = replace(status.keep(working, error=unfit.error), attempts=count.count)
        return Outcome("kept", node, after, attempts=tuple(task.state.ended))
    failed = status.fail(working, error=unfit.error, attempts=count.count)
    if stand_in_due and task.clean and node.forced:
        after = status.keep_previous(working, error=unfit.error, stale=task.stale)
        return Outcome("failed", node, after, attempts=tuple(task.state.ended))
    if stand_in_due:
        draft = await _make_stand_in(task)
        if draft is not None:
            fallback = run.plan(node.level, run.fallback)
            revision = _revision(
                task,
                draft,
                node_labels,
                wanted=plan.node_hash(node, task.inputs, fallback.strategy),
                level_plan=fallback,
                degraded=True,
            )
            outcome = _outcome(task, "degraded", revision)
            assert outcome.after is not None
            after = replace(outcome.after, error=unfit.error, attempts=count.count)
            return replace(outcome, after=after)
    return Outcome("failed", node, failed, attempts=tuple(task.state.ended))


def _as_generating(task: NodeTask) -> Node:
    """Return the node in the status "generating": as it was claimed, or as if it were."""
    node, run = task.node, task.run
    if run.commits.claimed(node.id):
        return node
    pending = status.reset(node, now=run.now(), owner=run.run_id)
    return status.claim(pending, owner=run.run_id, until=None)


def _outcome(task: NodeTask, kind: OutcomeKind, revision: Revision) -> Outcome:
    """Return the outcome that makes ``revision`` serve."""
    serving = task.serving
    revision = noted(
        revision,
        task.inputs,
        size=task.run.config.overlap,
        verbatim=revision.strategy == VERBATIM,
        before=serving,
    )
    return Outcome(
        kind,
        task.node,
        status.succeed(_as_generating(task), revision, stale=task.stale),
        revision,
        inputs=task.inputs.serving,
        attempts=tuple(task.state.ended),
        changes_parent=serving is not None and serving.output_hash != revision.output_hash,
    )


async def _make_stand_in(task: NodeTask) -> Draft | None:
    """Extract a text from the same inputs; None where even that is not fit."""
    request = request_for(task, task.inputs.sources, task.length, summaries=0, prompted=False)
    response = await task.run.fallback.complete(request)
    standard = standard_of(task, request, task.inputs.tokens)
    draft = await asyncio.to_thread(assess_answer, request, standard, response)
    return draft if draft.fit else None


def _revision(
    task: NodeTask,
    draft: Draft,
    node_labels: Labels,
    *,
    wanted: str,
    level_plan: LevelPlan,
    degraded: bool = False,
) -> Revision:
    """Return the revision for a draft that was accepted."""
    node, state, run = task.node, task.state, task.run
    found = draft.anchors
    started = min((attempt.started_at for attempt in state.ended), default=run.now())
    now = run.now()
    return Revision(
        node_id=node.id,
        number=node.revision + 1,
        text=draft.text,
        tokens=draft.tokens,
        input_hash=wanted,
        output_hash=output_hash(
            text=draft.text, anchors=found, tags=node_labels.tags, entities=node_labels.entities
        ),
        strategy=level_plan.strategy,
        style=level_plan.style,
        model=draft.model or (run.fallback.name if degraded else run.llm.name),
        created_at=now,
        provenance=units.pack(draft.units) if draft.units else "",
        anchors=found,
        tags=node_labels.tags,
        entities=node_labels.entities,
        fidelity=draft.fidelity,
        unsupported=draft.unsupported,
        trust=task.inputs.trust,
        degraded=degraded,
        tokens_in=state.tokens_in,
        tokens_out=state.tokens_out,
        calls=state.calls,
        duration_ms=max(0, math.ceil((now - started).total_seconds() * 1000)),
        extras={"base": node.span.start, "target": task.length.target},
    )
