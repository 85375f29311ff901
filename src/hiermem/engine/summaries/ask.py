"""Gets a fit draft from a model: by a prompt, a stricter prompt, or from the windows below.

Only fit drafts leave this module. ``core.summaries`` judges what is wrong with an answer, whether
to ask again, and which of two answers is better.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from hiermem.core.calls.failures import shown
from hiermem.core.calls.verdict import Accepted, Rejected, Retry, Verdict
from hiermem.core.summaries import plan
from hiermem.core.summaries.assess import Draft, join, source_of, weigh_against
from hiermem.core.summaries.inputs import Inputs
from hiermem.core.summaries.judge import Standard, judge
from hiermem.core.summaries.model_history import count_without, writes_headings
from hiermem.core.summaries.parts import key_of
from hiermem.core.summaries.plan import Failure, Lengths, LevelPlan
from hiermem.core.summaries.prompt import Length, render
from hiermem.core.summaries.retries import PROMPTS
from hiermem.engine.calls.ask import ask_until_fit
from hiermem.engine.calls.run import CallState
from hiermem.engine.calls.token_count import tokens_of
from hiermem.engine.summaries.parts import store_part, stored_part
from hiermem.engine.summaries.run import UpdateRun, read_windows
from hiermem.errors import ModelError, PermanentModelError, SpendLimitError, StoreError
from hiermem.protocols import ChatMessage, LLMRequest, LLMResponse, SourceText
from hiermem.types import Node, Revision

#: Tokens for what is filled into a template: title, people, times, marks.
_PROMPT_FRAME: Final = 120


def prompt_tokens(level_plan: LevelPlan, *, count: Callable[[str], int]) -> int:
    """Estimate the tokens of a request of this level without its inputs."""
    return count(level_plan.template.system) + count(level_plan.template.user) + _PROMPT_FRAME


class UnfitError(Exception):
    """No answer of this run is fit."""

    def __init__(self, kind: Failure, error: str) -> None:
        super().__init__(error)
        self.kind: Failure = kind
        self.error = error


@dataclass(frozen=True, slots=True)
class NodeTask:
    """One node in progress: what it is made from and how.

    ``clean``: its text is made from these inputs already. ``stale``: a child's text is flagged as
    out of date. ``prompts`` is how many may be sent for one answer.
    """

    run: UpdateRun
    state: CallState
    inputs: Inputs
    plan: LevelPlan
    length: Lengths
    serving: Revision | None
    clean: bool = False
    stale: bool = False
    prompts: int = PROMPTS

    @property
    def node(self) -> Node:
        """The node as it is claimed, or as it was read."""
        return self.state.node


async def compose(task: NodeTask) -> Draft:
    """Get a fit draft from the inputs, and from the windows below where the first lost too much.

    Raises UnfitError, SpendLimitError and ClaimLostError.
    """
    draft = await _draft_in_parts(task, task.inputs, task.length)
    if (
        task.node.level < plan.FROM_WINDOWS
        or draft.units
        or draft.fidelity is None
        or draft.fidelity >= task.plan.min_fidelity
    ):
        return draft
    try:
        windows = await read_windows(task.run, task.node)
        if windows is None:
            return draft
        other = await _draft_in_parts(task, windows, task.length)
    except (UnfitError, SpendLimitError, StoreError):
        # The draft is fit and paid for; a better one is not available now.
        return draft
    texts = [source.text for source in windows.sources]
    limit = plan.anchor_limit(task.length.target)
    first, second = await asyncio.to_thread(
        lambda: [weigh_against(each, texts, limit=limit) for each in (draft, other)]
    )
    return other if plan.better(first, second) else draft


async def _draft_in_parts(task: NodeTask, inputs: Inputs, length: Lengths) -> Draft:
    """Summarise inputs in one request, or in several where they are too large for one."""
    run, count = task.run, task.run.counter.count
    summaries = 0 if task.node.level == 1 else len(inputs.sources)
    room = plan.room_for_inputs(
        run.llm.context_window,
        inputs=inputs.tokens,
        answer=length.limit,
        prompt=prompt_tokens(task.plan, count=count) if run.llm.context_window else 0,
        margin=run.margin,
    )
    parts = await asyncio.to_thread(
        plan.in_parts, inputs, level=task.node.level, config=run.config, room=room, count=count
    )
    if len(parts) == 1:
        return await _draft(task, inputs.sources, length, tokens=inputs.tokens, summaries=summaries)
    sizes = [await tokens_of(count, [source.text for source in part]) for part in parts]
    drafts: list[Draft] = []
    shares = plan.shares(length, sizes)
    keys = part_keys(task.node, inputs, parts, shares, strategy=task.plan.strategy)
    for key, part, size, share in zip(keys, parts, sizes, shares, strict=True):
        draft = await stored_part(run, task.node.id, key)
        if draft is None:
            draft = await _draft(task, part, share, tokens=size, summaries=summaries)
            await store_part(run, task.node.id, key, draft)
        drafts.append(draft)
    return join(drafts, count=count)


def part_keys(
    node: Node,
    inputs: Inputs,
    parts: Sequence[Sequence[SourceText]],
    shares: Sequence[Lengths],
    *,
    strategy: str,
) -> list[str]:
    """Return the keys of the answers to the parts of what ``node`` is made from."""
    return [
        key_of(node.id, part, share, level=node.level, strategy=strategy, overlap=inputs.overlap)
        for part, share in zip(parts, shares, strict=True)
    ]


async def _draft(
    task: NodeTask,
    sources: Sequence[SourceText],
    length: Lengths,
    *,
    tokens: int,
    summaries: int,
) -> Draft:
    """Ask once, and once more with the problems named where that is due; return the better draft.

    Raises UnfitError where neither answer is fit, SpendLimitError and ClaimLostError.
    """
    # The stand-in reads the inputs alone; a prompt would be rendered and counted for nothing.
    request = request_for(
        task, sources, length, summaries=summaries, prompted=not task.run.is_deterministic
    )
    standard = standard_of(task, request, tokens)
    try:
        verdict = await ask_until_fit(
            task.run,
            task.state,
            request,
            partial(_judge_first, task, request, standard),
            ahead=standard.source.read,
        )
    except ModelError as error:
        raise _unfit(error) from None
    if isinstance(verdict, Rejected):
        raise UnfitError("rejected", verdict.detail)
    return verdict.value


def _judge_first(
    task: NodeTask, request: LLMRequest, standard: Standard, response: LLMResponse
) -> Verdict[Draft]:
    """Judge the first answer to a request, and remember whether the model writes headings."""
    run = task.run
    standard = replace(standard, writes_headings=writes_headings(run.without_headings))
    verdict = judge(request, standard, response, tried=1 + PROMPTS - task.prompts)
    draft = None if isinstance(verdict, Rejected) else _draft_of(verdict)
    if draft is not None and not run.is_deterministic:
        required = standard.plan.template.required
        run.without_headings = count_without(run.without_headings, draft, required)
    return verdict


def _draft_of(verdict: Accepted[Draft] | Retry[Draft]) -> Draft | None:
    return verdict.value if isinstance(verdict, Accepted) else verdict.usable


def standard_of(task: NodeTask, request: LLMRequest, tokens: int) -> Standard:
    """Return what the answers to ``request``, with inputs of so many ``tokens``, are held to."""
    whole = request.inputs == task.inputs.sources
    return Standard(
        task.plan,
        source_of(request, limit=plan.anchor_limit(request.target_tokens)),
        tokens,
        known=task.inputs.anchors if whole else None,
        is_deterministic=task.run.is_deterministic,
    )


def request_for(
    task: NodeTask,
    sources: Sequence[SourceText],
    length: Lengths,
    *,
    summaries: int,
    prompted: bool = True,
) -> LLMRequest:
    """Return the request for these sources."""
    run, node = task.run, task.node
    messages = (
        messages_for(
            run,
            node,
            task.plan,
            sources,
            length,
            summaries=summaries,
            overlap=task.inputs.overlap,
        )
        if prompted
        else ()
    )
    return LLMRequest(
        task="summarise",
        messages=messages,
        inputs=tuple(sources),
        target_tokens=length.target,
        max_tokens=length.limit,
        counter=run.counter,
        level=node.level,
        style=task.plan.style,
        temperature=run.config.temperature,
    )


def messages_for(
    run: UpdateRun,
    node: Node,
    level_plan: LevelPlan,
    sources: Sequence[SourceText],
    length: Lengths,
    *,
    summaries: int,
    overlap: str,
) -> tuple[ChatMessage, ...]:
    """Return the messages of the request for these sources; a dry run counts them."""
    return render(
        level_plan.template,
        sources,
        facts=run.facts(node, summaries),
        length=Length(
            length.target, length.limit, level_plan.ratio, ratio_only=run.config.ratio_only
        ),
        overlap=overlap,
    )


def _unfit(error: ModelError) -> UnfitError:
    """Return the failure that a model's error counts as, without its text.

    The text may hold the prompt, or a key.
    """
    kind: Failure = "permanent" if isinstance(error, PermanentModelError) else "transient"
    return UnfitError(kind, shown(error, kind=error.kind))
