"""Works out what an update would do, without doing it: the dry run.

The planner walks the unfinished nodes in the run's own order. It drives the decision of each
(``core.summaries.making``) to its outcome, or to the first question to a model, and counts what
asking would take. Nothing is written and no model is called. The text that a node would get is
unknown, so its input hash stands for it: two nodes made from the same inputs get equal texts.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from hiermem.core.calls.run_report import answering_time
from hiermem.core.summaries import plan, status
from hiermem.core.summaries.inputs import (
    Inputs,
    from_children,
    from_messages,
    most_parts,
    without_texts,
)
from hiermem.core.summaries.making import Ask, LookUp, Outcome, ReadInputs, make
from hiermem.core.summaries.retries import AttemptCount
from hiermem.core.text.hashes import input_hash
from hiermem.engine.summaries.parts import count_stored, split
from hiermem.engine.summaries.request_size import RequestSizes
from hiermem.engine.summaries.retries import count_attempts, is_left_alone
from hiermem.engine.summaries.run import (
    UpdateRun,
    read_inputs,
    read_outdated,
    read_pages,
    read_windows_at_once,
)
from hiermem.types import Node, Revision, StoredMessage
from hiermem.types.transaction import NeedRevisions

#: How many of the newest runs, and of one's calls, are read to learn how fast a model answers.
_RUNS: Final = 20
_CALLS: Final = 200
#: More tokens than any text has.
_MANY: Final = 10**9


async def plan_update(
    run: UpdateRun,
    counts: Mapping[int, int],
    loose: Sequence[Node],
    *,
    follow_strategy: bool = True,
) -> plan.UpdatePlan:
    """Plan an update of the first ``counts`` nodes of each level, and of the ``loose`` ones.

    With ``follow_strategy``, texts of an outdated strategy count too, where the policy says so.
    """
    planner = _UpdatePlanner(run, call_seconds=await _answering_time(run))
    for level, stop in sorted(counts.items()):
        async for page in read_pages(partial(run.tree.unfinished, level), stop):
            if level == 1:
                await planner.read_ahead(page)
            for node in page:
                await planner.plan_node(node)
        async for page in read_outdated(run, level, stop if follow_strategy else 0):
            for node in page:
                await planner.plan_outdated(node)
        for node in planner.dirtied(level):
            await planner.plan_node(node)
    for node in loose:
        await planner.plan_node(node)
    run.shared.planned.update(planner.requests)
    return planner.tally.plan()


async def _answering_time(run: UpdateRun) -> float | None:
    """Return the seconds in which the model answered lately, as journalled; None if unknown."""
    name = run.llm.name
    for record in await run.store.runs(limit=_RUNS) if run.llm.remote else ():
        if record.detail.get("model") == name:
            calls = await run.store.attempts(run_id=record.id, limit=_CALLS)
            if (seconds := answering_time(calls, model=name)) is not None:
                return seconds
    return None


@dataclass(frozen=True, slots=True)
class _Text:
    """The text that a node will have: an identifier of it, and the most tokens that it can have.

    ``tokens`` are those it has, None where it is not made yet.
    """

    output: str
    most: int
    tokens: int | None = None

    @classmethod
    def of(cls, revision: Revision) -> _Text:
        """Return a text that exists."""
        return cls(revision.output_hash, revision.tokens, revision.tokens)


class _UpdatePlanner:
    """The plan so far: the text that each node will have."""

    def __init__(self, run: UpdateRun, *, call_seconds: float | None) -> None:
        self._run = run
        self._texts: dict[str, _Text] = {}
        self._short_texts: dict[str, Revision] = {}
        self.requests: set[str] = set()
        self._dirtied: dict[int, dict[str, Node]] = {}
        #: What was read of a page of windows at once: their inputs, and texts by input hash. The
        #: messages of windows with unread inputs are kept for the requests that are rendered.
        self._inputs: dict[str, Inputs] = {}
        self._unread: dict[str, Sequence[StoredMessage]] = {}
        self._found: dict[str, Revision | None] = {}
        self._sizes = RequestSizes(run)
        self.tally = plan.Tally(
            policy=run.policy,
            remote=run.llm.remote,
            is_deterministic=run.is_deterministic,
            prices=getattr(run.llm, "prices", None),
            call_seconds=call_seconds,
        )

    def dirtied(self, level: int) -> list[Node]:
        """Return the nodes of ``level`` with a text of which an input changes."""
        found = self._dirtied.pop(level, {})
        return [node for id_, node in sorted(found.items()) if id_ not in self._texts]

    async def read_ahead(self, windows: Sequence[Node]) -> None:
        """Read what a page of windows is made from, and look up the texts made from the same."""
        run, strategy = self._run, self._run.plan(1).strategy
        self._inputs, self._unread = {}, {}
        wanted: dict[str, None] = {}
        for node, messages in await read_windows_at_once(run, windows):
            inputs = self._read_without_texts(node, messages)
            if inputs is None:
                inputs = from_messages(node.span, messages, count=run.counter.count)
            else:
                self._unread[node.id] = messages
            self._inputs[node.id] = inputs
            if not node.verbatim and not inputs.empty:
                wanted[plan.node_hash(node, inputs, strategy)] = None
        found = await asyncio.gather(*map(run.store.reusable, wanted))
        self._found = dict(zip(wanted, found, strict=True))

    def _read_without_texts(self, node: Node, messages: Sequence[StoredMessage]) -> Inputs | None:
        """Return the inputs of a window without their texts; None where those matter to the plan.

        They do where the text is copied, or where the model may be asked for it in parts.
        """
        if node.verbatim or self._run.llm.context_window is not None:
            return None
        inputs = without_texts(node.span, messages)
        if inputs is None or plan.may_have_long_message(inputs.tokens, self._run.config):
            return None
        return inputs

    async def plan_outdated(self, node: Node) -> None:
        """Plan a node that will be marked dirty, unless it is planned already."""
        if node.id not in self._texts:
            await self.plan_node(status.mark_dirty(node))

    async def plan_node(self, node: Node) -> None:
        """Plan one node: drive its decision until a model would be asked."""
        run = self._run
        foreseen = any(child in self._texts for child in node.children)
        if not foreseen and await is_left_alone(run, node):
            return
        inputs, below = await self._read_inputs(node, foreseen=foreseen)
        serving: Revision | None = None
        wanted = ""
        decision = make(node, run)
        reply: Any = None
        while True:
            try:
                request = decision.send(reply)
            except StopIteration as done:
                text = self._text_after(done.value, serving)
                break
            if isinstance(request, tuple):
                ask, _ = request
                assert isinstance(ask, Ask)
                text = await self._count_ask(node, ask, wanted, below, retried=reply.count > 0)
                break
            if callable(request) and inputs and inputs.unread:
                most = sum(each.most for each in below)
                text = self._copied(node, "kept", inputs, most)
                break
            match request:
                case ReadInputs():
                    reply = inputs
                case NeedRevisions(numbers):
                    reply = await run.tree.revisions(numbers)
                    serving = next(iter(reply), None)
                case LookUp(wanted):
                    reply = await self._look_up(request, below)
                case _:
                    # No flag of a child changes what its parent takes.
                    reply = request() if callable(request) else []
        if text is None:
            return
        self._texts[node.id] = text
        if serving and serving.output_hash != text.output:
            await self._mark_parent(node)

    async def _read_inputs(
        self, node: Node, *, foreseen: bool
    ) -> tuple[Inputs | None, list[_Text]]:
        """Read what a node is made from; with it the texts of its children where one is planned."""
        run = self._run
        if not foreseen:
            return self._inputs.get(node.id) or await read_inputs(run, node), []
        others = [child for child in node.children if child not in self._texts]
        made = (
            [(child.id, child.revision) for child in await run.tree.nodes(others)] if others else []
        )
        found = await run.tree.revisions(made) if made else []
        stored = {revision.node_id: revision for revision in found}
        below = [
            self._texts.get(child)
            or (_Text.of(stored[child]) if child in stored else _Text(child, 0))
            for child in node.children
        ]
        short = [child for child in node.children if child in self._short_texts]
        stored |= {child: self._short_texts.pop(child) for child in short}
        if node.verbatim and all(child in stored for child in node.children):
            children = await run.tree.nodes(node.children)
            pairs = [(child, stored[child.id]) for child in children]
            return from_children(pairs, verbatim=True), below
        known = [text.tokens for text in below if text.tokens is not None]
        tokens = sum(known) if len(known) == len(below) else node.input_tokens
        outputs = tuple(text.output for text in below)
        return Inputs((), outputs, (), tokens, "conversation", unread=True), below

    async def _look_up(self, request: LookUp, below: list[_Text]) -> Revision | AttemptCount:
        """Return a stored text that fits; else the count of attempts.

        Of texts that do not exist yet nothing was made, and nothing was asked for.
        """
        if any(text.tokens is None for text in below):
            return AttemptCount()
        wanted, fits = request.input_hash, request.fits
        if fits is not None:
            known = wanted in self._found
            before = self._found[wanted] if known else await self._run.store.reusable(wanted)
            if before is not None and fits(before):
                return before
        return await count_attempts(self._run, wanted)

    def _text_after(self, outcome: Outcome, serving: Revision | None) -> _Text | None:
        """Count a node for which no model is asked; return the text that it will have, if any."""
        node, revision = outcome.node, outcome.revision
        if outcome.kind == "leased":
            return _Text(f"leased {node.id}", self._limit(node))
        if outcome.kind == "reused":
            self.tally.reused(node)
        elif outcome.kind in ("made", "kept"):
            self.tally.kept(node)
        if revision is not None and node.allotted_tokens <= self._run.config.verbatim_tokens:
            # A parent may copy it word for word.
            self._short_texts[node.id] = revision
        text = revision or serving
        return _Text.of(text) if text else None

    def _copied(self, node: Node, how: str, inputs: Inputs, most: int) -> _Text:
        """Count a node whose text is taken from its inputs without a call."""
        self.tally.kept(node)
        return _Text(f"{how} {input_hash(level=0, strategy='', outputs=inputs.outputs)}", most)

    async def _count_ask(
        self, node: Node, ask: Ask, wanted: str, below: list[_Text], *, retried: bool
    ) -> _Text:
        """Count a call, or the reuse of one that is made for an equal node, of any session."""
        run, inputs, length = self._run, ask.inputs, ask.length
        if not ask.prompts:
            return self._copied(node, "extract", inputs, length.limit)
        counted = wanted in self.requests or wanted in run.shared.planned
        shared = counted and not node.forced
        sized = not run.is_deterministic and not shared
        least, tokens_in = run.room(node.level), inputs.tokens
        if below:
            room = run.room(node.level, inputs=node.input_tokens, answer=length.limit)
            parts = 1 if room is None else max(1, math.ceil(node.input_tokens / room))
            sizes = [text.most for text in below]
            worst = most_parts(sizes, least, count=run.counter.count)
            most = self._limit(node, sum(sizes))
            if sized:
                tokens_in = await self._sizes.of_children(node, tokens_in, length, parts)
        else:
            requests = await split(run, node, ask)
            stored = await count_stored(run, [key for key, _ in requests])
            parts = worst = len(requests) - stored
            most = length.limit
            if sized:
                messages = self._unread.get(node.id)
                if messages is not None and self._sizes.is_rendered(node):
                    inputs = from_messages(node.span, messages, count=run.counter.count)
                of = len(requests)
                tokens_in = await self._sizes.of_inputs(node, inputs, length, parts, of=of)
        windows = await self._window_requests(node, least)
        if shared:
            self.tally.shared(node, most=max(parts, worst), windows=windows)
        else:
            self.requests.add(wanted)
            self.tally.called(
                node,
                parts=parts,
                tokens_in=tokens_in,
                most=worst,
                windows=windows,
                prompts=ask.prompts,
                retried=retried,
                tokens_out=plan.asked_tokens(node, run.config),
            )
        return _Text(f"answer to {wanted}", most)

    async def _window_requests(self, node: Node, room: int | None) -> int:
        """Return the most requests that a draft from the windows below ``node`` takes."""
        if node.level < plan.FROM_WINDOWS or room is None or self._run.is_deterministic:
            return 1
        tree = self._run.tree
        below = await tree.level(1, *node.windows)
        existing = [each for each in below if each.id not in self._texts and each.revision]
        found = await tree.revisions([(each.id, each.revision) for each in existing])
        most = {each.id: self._limit(each) for each in below}
        most |= {revision.node_id: revision.tokens for revision in found}
        most |= {id_: self._texts[id_].most for id_ in most if id_ in self._texts}
        return most_parts(list(most.values()), room, count=self._run.counter.count)

    def _limit(self, node: Node, tokens: int = _MANY) -> int:
        """Return the most tokens that a text of a node can have, made from so many at most."""
        run, ratio = self._run, self._run.policy.hard_ratio
        return plan.lengths(node, tokens, hard_ratio=ratio, config=run.config).limit

    async def _mark_parent(self, node: Node) -> None:
        """Note that the parent of a node with a new text gets a new text too."""
        if node.parent is None:
            return
        for parent in await self._run.tree.nodes([node.parent]):
            if parent.revision:
                self._dirtied.setdefault(parent.level, {})[parent.id] = parent
