"""Reads what an update would make, and adds up what it would take.

Nothing is written and no model is called. A text that is not made yet counts with its requested
size, and the hash of its inputs stands for it: equal inputs are asked for once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from hiermem.calls.limits import FRAME
from hiermem.summaries import plan
from hiermem.summaries.inputs import Inputs, from_messages
from hiermem.summaries.node import (
    UpdateRun,
    copied,
    count_attempts,
    is_left_alone,
    prompts_due,
    read_inputs,
    read_outdated,
    read_pages,
    task_of,
)
from hiermem.summaries.reports import UpdatePlan
from hiermem.tree import status
from hiermem.types import Node
from hiermem.types.transaction import NeedMessages

#: Tokens of the line above a summary in a request.
_HEAD: Final = 9


async def plan_update(
    run: UpdateRun,
    counts: Mapping[int, int],
    planned: Iterable[Node] = (),
    *,
    follow_strategy: bool = True,
) -> UpdatePlan:
    """Add up the calls and tokens of an update in which every answer is fit.

    It covers the first ``counts`` nodes of each level, and the ``planned`` ones, lowest level
    first, which need not be stored. With ``follow_strategy``, texts of an outdated strategy count
    too, if the policy says so.
    """
    to_make, reused, frames = Counter[int](), Counter[int](), dict[int, int]()
    #: The hash that stands for the new text of each node, and its tokens.
    texts: dict[str, tuple[str, int]] = {}
    calls = tokens_in = tokens_out = 0
    async for node, read in _unmade(run, counts, planned, follow=follow_strategy):
        inputs = read or await _inputs(run, node, texts)
        if inputs is None or plan.is_right(task := await task_of(run, node, inputs)):
            continue
        to_make[node.level] += 1
        if plan.is_copied(node, inputs.tokens) or inputs.empty:
            copy = None if inputs.unread else copied(run, node, inputs)
            texts[node.id] = (copy.output_hash, copy.tokens) if copy else (node.id, inputs.tokens)
            continue
        wanted, length = task.wanted, task.length
        reusable = None if node.forced else await run.store.reusable(wanted)
        if reusable is not None and plan.may_reuse(reusable, length):
            reused[node.level] += 1
            texts[node.id] = (reusable.output_hash, reusable.tokens)
            continue
        texts[node.id] = (wanted, length.target)
        if wanted in run.shared.planned and not node.forced:
            reused[node.level] += 1
            continue
        run.shared.planned.add(wanted)
        if not prompts_due(node, await count_attempts(run, wanted), run):
            continue
        calls += 1
        tokens_out += length.target
        if run.is_deterministic:
            tokens_in += inputs.tokens
            continue
        if node.level not in frames:
            prompt = run.prompt(node, (), length, summaries=len(node.children), overlap="")
            frames[node.level] = sum(run.counter.count(each.content) + FRAME for each in prompt)
        room = run.room(node.level, inputs=inputs.tokens, answer=length.limit)
        record = inputs.tokens + _HEAD * len(node.children)
        tokens_in += frames[node.level] + min(record, room or record)
    prices = getattr(run.llm, "prices", None)
    return UpdatePlan(
        calls=calls,
        calls_max=calls if run.is_deterministic else 2 * calls,
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        by_level=dict(sorted(to_make.items())),
        reused=reused.total(),
        reused_by_level=dict(sorted(reused.items())),
        seconds=plan.seconds(calls, tokens_in + tokens_out, run.policy, remote=run.llm.remote),
        cost=prices.cost(tokens_in, tokens_out) if prices else None,
    )


async def _unmade(
    run: UpdateRun, counts: Mapping[int, int], planned: Iterable[Node], *, follow: bool
) -> AsyncIterator[tuple[Node, Inputs | None]]:
    """Yield the nodes that an update would examine, lowest level first, with windows' inputs."""
    new: dict[int, list[Node]] = {}
    for node in planned:
        new.setdefault(node.level, []).append(node)
    above: set[str] = set()
    for level in sorted(counts.keys() | new.keys()):
        stop, seen, below = counts.get(level, 0), set[str](), above
        above = set()
        async for page in _pages(run, level, stop, below, new.get(level, []), follow=follow):
            due = [node for node in page if node.id not in seen]
            seen |= {node.id for node in due}
            above |= {node.parent for node in due if node.parent and node.revision}
            read = await _read_windows(run, [node for node in due if not node.children])
            for node in due:
                yield node, read.get(node.id)


async def _pages(
    run: UpdateRun, level: int, stop: int, below: set[str], new: list[Node], *, follow: bool
) -> AsyncIterator[list[Node]]:
    """Yield the nodes of one level in pages, some of them twice."""
    async for page in read_pages(partial(run.tree.unfinished, level), stop):
        due = [node for node in page if not status.is_flagged(node) or node.degraded]
        yield [node for node in due if not await is_left_alone(run, node)]
    async for page in read_outdated(run, level, stop if follow else 0):
        yield [status.mark_dirty(node, now=run.now()) for node in page]
    # A new text of a child makes its parent dirty.
    parents = await run.tree.nodes(sorted(below)) if below else []
    yield [
        status.mark_dirty(node, now=run.now())
        for node in parents
        if node.revision and node.level == level
    ]
    yield new


async def _read_windows(run: UpdateRun, windows: Sequence[Node]) -> dict[str, Inputs]:
    """Read the inputs of windows at once; none if a text before them is shown, too."""
    if run.config.overlap or not windows:
        return {}
    needs = [
        (run.subject, NeedMessages(node.span.start, node.span.stop, node.thread))
        for node in windows
    ]
    return {
        node.id: from_messages(
            node.span,
            messages,
            count=run.counter.count,
            tool_tokens=run.config.tool_result_tokens,
            unread=not node.verbatim,
        )
        for node, messages in zip(windows, await run.store.read(needs), strict=True)
    }


async def _inputs(run: UpdateRun, node: Node, texts: dict[str, tuple[str, int]]) -> Inputs | None:
    """Return a node's inputs; without their texts if one of them is not made yet."""
    if texts.keys().isdisjoint(node.children):
        return await read_inputs(run, node)
    below = texts
    if others := [child for child in node.children if child not in texts]:
        children = await run.tree.nodes(others)
        revisions = await run.tree.revisions([(child.id, child.revision) for child in children])
        stored = {
            revision.node_id: (revision.output_hash, revision.tokens) for revision in revisions
        }
        below = stored | texts
    outputs = [below[child] for child in node.children if child in below]
    return Inputs(
        (),
        tuple(output for output, _ in outputs),
        (),
        sum(tokens for _, tokens in outputs),
        "conversation",
        unread=True,
    )
