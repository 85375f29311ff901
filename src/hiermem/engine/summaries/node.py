"""Makes the text of one node: kept word for word, found again, asked of a model, or the stand-in.

::

    inputs -> verbatim | made before | prompt -> stricter prompt -> windows below
           -> failed -> stand-in

The one rule: it commits nothing and decides nothing. It reads the inputs, lets ``core`` say what
follows, and gives back an Outcome for the ledger. What is hard wrong with an answer never gets
into one.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace

from hiermem.core.log.overlap import noted
from hiermem.core.search import labels
from hiermem.core.summaries import plan, status
from hiermem.core.summaries.assess import MOST_ANCHORS, Draft
from hiermem.core.summaries.inputs import Inputs, Verbatim, rebase, word_for_word
from hiermem.core.summaries.plan import LevelPlan
from hiermem.core.text import anchors, units
from hiermem.core.text.hashes import VERBATIM, output_hash
from hiermem.engine.calls.in_flight import Awaited
from hiermem.engine.calls.run_context import ClaimLostError, Making
from hiermem.engine.summaries.ask import Task, UnfitError, assess_answer, compose, request_for
from hiermem.engine.summaries.commit import Outcome, OutcomeKind
from hiermem.engine.summaries.run import Workshop, read_inputs, read_serving
from hiermem.errors import SpendLimitError
from hiermem.types import Node, Revision


async def make(shop: Workshop, node: Node) -> Outcome:
    """Make the text of ``node``, or say why there is none. Commits nothing.

    Raises what the store raises.
    """
    stand = status.standing(node, now=shop.now(), owner=shop.run_id)
    if stand == "leased":
        return Outcome("leased", node)
    inputs = await read_inputs(shop, node)
    if inputs is None:
        return Outcome("moved", node)
    serving = await read_serving(shop, node)
    clean = serving is not None and shop.is_clean(node, inputs, serving)
    stale = node.stale and await _is_flagged_below(shop, node)
    if node.dirty and node.status == "active" and clean and not node.forced:
        # A provisional node is only looked at as if dirty; nothing about it has to be written.
        after = status.clean(node, stale=stale) if node.sealed else None
        return Outcome("clean", node, after=after)
    length = plan.lengths(
        node,
        inputs.tokens,
        hard_ratio=shop.policy.hard_ratio,
        config=shop.config,
    )
    task = Task(
        shop,
        Making(node, inputs.tokens),
        inputs,
        shop.plan(node.level),
        length,
        serving,
        clean=clean,
        stale=stale,
    )
    if node.verbatim or not inputs.sources:
        revision = verbatim_revision(node, inputs, shop.plan(node.level), count=shop.counter.count)
        return _give(task, "made", replace(revision, created_at=shop.now()))
    return await _once_for_all(task)


async def _is_flagged_below(shop: Workshop, node: Node) -> bool:
    """Say whether a child's text is of what is there no more, so that this one's is too."""
    return any(child.stale for child in await shop.store.nodes(shop.session_id, node.children))


def verbatim_revision(
    node: Node, inputs: Inputs, level_plan: LevelPlan, *, count: Callable[[str], int]
) -> Revision:
    """Make the revision of a node that keeps its inputs word for word, or has none to keep."""
    kept = word_for_word(inputs, count=count) if inputs.sources else Verbatim("", 0, "")
    found = anchors.find(kept.text, limit=MOST_ANCHORS)
    borne = labels.of_inputs(inputs)
    return Revision(
        node_id=node.id,
        number=node.revision + 1,
        text=kept.text,
        tokens=kept.tokens,
        input_hash=plan.made_hash(node.level, VERBATIM, inputs),
        output_hash=output_hash(
            text=kept.text, anchors=found, tags=borne.tags, entities=borne.entities
        ),
        strategy=VERBATIM,
        style=level_plan.style,
        model="verbatim",
        created_at=node.last_at,
        provenance=kept.provenance,
        anchors=found,
        tags=borne.tags,
        entities=borne.entities,
        trust=inputs.trust,
        extras={"base": node.span.start},
    )


async def _once_for_all(task: Task) -> Outcome:
    """Find the text that was made from the same inputs, or is being made; else make it.

    A node that a new text was asked for takes none that was made before.
    """
    shop, wanted = task.shop, plan.node_hash(task.node, task.inputs, task.plan.strategy)
    if task.node.forced:
        return await _compose_or_stand_in(task, wanted)
    unfit: Awaited | None = None
    while (others := shop.shared.in_hand.get(wanted)) is not None and others is not unfit:
        with shop.idle():
            await asyncio.wait([others], timeout=shop.purse.time_left())
        found = others.result() if others.done() else None
        if found is not None and plan.may_reuse(found, task.length):
            return _reuse(task, found)
        unfit = others
    # Begun before the store is asked: else two that find nothing there would both ask the model.
    mine = shop.begin_text(wanted)
    made: Revision | None = None
    in_hand = False
    try:
        before = await shop.store.reusable(wanted)
        if before is not None and plan.may_reuse(before, task.length):
            made = before
            return _reuse(task, before)
        outcome = await _compose_or_stand_in(task, wanted)
        if outcome.kind == "made":
            made, in_hand = outcome.revision, True
        return outcome
    finally:
        mine.set_result(made)
        if not in_hand and shop.making.get(wanted) is mine:
            shop.drop_text(wanted)


def _reuse(task: Task, found: Revision) -> Outcome:
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
        created_at=task.shop.now(),
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
    return _give(task, "reused", revision)


async def _compose_or_stand_in(task: Task, wanted: str) -> Outcome:
    """Ask the model; where nothing fit comes of it, count the attempt or commit the stand-in."""
    shop, making = task.shop, task.making
    try:
        draft = await compose(task)
    except SpendLimitError:
        await shop.ledger.give_back(task.node.id, making.ended)
        return Outcome("refused", task.node)
    except ClaimLostError:
        return Outcome("moved", task.node, attempts=tuple(making.ended))
    except UnfitError as unfit:
        return await _after_failure(task, unfit)
    revision = await _revision(task, draft, wanted=wanted, level_plan=task.plan)
    return _give(task, "made", revision)


async def _after_failure(task: Task, unfit: UnfitError) -> Outcome:
    """Leave the node failed, keep the stand-in it has, or make the stand-in."""
    node, shop = task.node, task.shop
    working = _working(task)
    spent, stand_in_due = plan.after_failure(node, unfit.kind, shop.policy)
    if node.degraded and node.revision and not node.dirty:
        after = status.keep(working, error=unfit.error)
        return Outcome("kept", node, after, attempts=tuple(task.making.ended))
    failed = status.fail(working, error=unfit.error, attempts=spent)
    if stand_in_due and task.clean and node.forced:
        after = status.relent(working, error=unfit.error, stale=task.stale)
        return Outcome("failed", node, after, attempts=tuple(task.making.ended))
    if stand_in_due:
        draft = await _stand_in(task)
        if draft is not None:
            fallback = shop.plan(node.level, shop.fallback)
            revision = await _revision(
                task,
                draft,
                wanted=plan.node_hash(node, task.inputs, fallback.strategy),
                level_plan=fallback,
                degraded=True,
            )
            given = _give(task, "degraded", revision)
            assert given.after is not None
            return replace(given, after=replace(given.after, error=unfit.error, attempts=spent))
    return Outcome("failed", node, failed, attempts=tuple(task.making.ended))


def _working(task: Task) -> Node:
    """Give the node as being generated: as it was claimed, or as if it were."""
    node, shop = task.node, task.shop
    if shop.ledger.claimed(node.id):
        return node
    pending = status.open_again(node, now=shop.now(), owner=shop.run_id)
    return status.claim(pending, owner=shop.run_id, until=None)


def _give(task: Task, kind: OutcomeKind, revision: Revision) -> Outcome:
    """Give the outcome that makes ``revision`` serve."""
    serving = task.serving
    revision = noted(
        revision,
        task.inputs,
        size=task.shop.config.overlap,
        verbatim=revision.strategy == VERBATIM,
        before=serving,
    )
    return Outcome(
        kind,
        task.node,
        status.succeed(_working(task), revision, stale=task.stale),
        revision,
        inputs=task.inputs.serving,
        attempts=tuple(task.making.ended),
        soils=serving is not None and serving.output_hash != revision.output_hash,
    )


async def _stand_in(task: Task) -> Draft | None:
    """Extract a text from the same inputs; None where even that is not fit."""
    request = request_for(task, task.inputs.sources, task.length, summaries=0, prompted=False)
    response = await task.shop.fallback.complete(request)
    draft = await assess_answer(task, response, request, task.inputs.tokens)
    return draft if draft.fit else None


async def _revision(
    task: Task, draft: Draft, *, wanted: str, level_plan: LevelPlan, degraded: bool = False
) -> Revision:
    """Make the record of a draft that becomes memory."""
    node, making, shop = task.node, task.making, task.shop
    found = draft.anchors
    started = min((attempt.started_at for attempt in making.ended), default=shop.now())
    borne = await asyncio.to_thread(labels.of_inputs, task.inputs)
    now = shop.now()
    return Revision(
        node_id=node.id,
        number=node.revision + 1,
        text=draft.text,
        tokens=draft.tokens,
        input_hash=wanted,
        output_hash=output_hash(
            text=draft.text, anchors=found, tags=borne.tags, entities=borne.entities
        ),
        strategy=level_plan.strategy,
        style=level_plan.style,
        model=draft.model or (shop.fallback.name if degraded else shop.llm.name),
        created_at=now,
        provenance=units.pack(draft.units) if draft.units else "",
        anchors=found,
        tags=borne.tags,
        entities=borne.entities,
        fidelity=draft.fidelity,
        unsupported=draft.unsupported,
        trust=task.inputs.trust,
        degraded=degraded,
        tokens_in=making.tokens_in,
        tokens_out=making.tokens_out,
        calls=making.calls,
        duration_ms=max(0, math.ceil((now - started).total_seconds() * 1000)),
        extras={"base": node.span.start, "target": task.length.target},
    )
