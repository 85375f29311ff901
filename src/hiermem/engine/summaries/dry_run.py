"""Works out what an update would do, without doing it: the dry run.

The planner walks the unfinished nodes in the run's own order and asks the same functions of
``core`` what each would take. Nothing is written and no model is called. The text that a node would
get is unknown, so its input hash stands for it: two nodes made from the same inputs get equal
texts.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from hiermem.core.calls.run_report import answering_time
from hiermem.core.summaries import plan, status
from hiermem.core.summaries.agenda import PAGE
from hiermem.core.summaries.inputs import (
    Inputs,
    from_children,
    from_messages,
    most_parts,
    without_texts,
)
from hiermem.core.summaries.retries import PROMPTS
from hiermem.core.text.hashes import input_hash
from hiermem.engine.calls.token_count import LONG, tokens_of
from hiermem.engine.summaries.ask import part_keys, prompt_tokens
from hiermem.engine.summaries.node import verbatim_revision
from hiermem.engine.summaries.outdated import outdated
from hiermem.engine.summaries.parts import count_stored
from hiermem.engine.summaries.request_size import RequestSizes
from hiermem.engine.summaries.retries import LeftAlone, count_attempts, prompts_due
from hiermem.engine.summaries.run import (
    UpdateRun,
    read_inputs,
    read_serving,
    read_windows_at_once,
)
from hiermem.types import Node, Revision, StoredMessage

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
        after = -1
        while True:
            page = await run.tree.unfinished(level, after, PAGE)
            if level == 1:
                await planner.read_ahead([node for node in page if node.ordinal < stop])
            for node in page:
                if node.ordinal < stop:
                    await planner.plan_node(node)
            if len(page) < PAGE or page[-1].ordinal >= stop:
                break
            after = page[-1].ordinal
        async for page in outdated(run, level, stop if follow_strategy else 0):
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
    name, known = run.llm.name, run.shared.answering_times
    if run.llm.remote and name not in known:
        known[name] = None
        for record in await run.store.runs(limit=_RUNS):
            if record.detail.get("model") == name and known[name] is None:
                calls = await run.store.attempts(run_id=record.id, limit=_CALLS)
                known[name] = answering_time(calls, model=name)
    return known.get(name)


class _UpdatePlanner:
    """The plan so far: for each node that gets a text, an identifier of that text."""

    def __init__(self, run: UpdateRun, *, call_seconds: float | None) -> None:
        self._run = run
        self._outputs: dict[str, str] = {}
        self._short_texts: dict[str, Revision] = {}
        self._tokens: dict[str, int] = {}
        self._max_tokens: dict[str, int] = {}
        self.requests: set[str] = set()
        self._dirtied: dict[int, dict[str, Node]] = {}
        #: What was read of a page of windows at once: their inputs, and texts by input hash. The
        #: inputs of the windows ``_without_texts`` are one part each, whatever their texts are;
        #: their messages are kept for the requests that are rendered.
        self._inputs: dict[str, Inputs] = {}
        self._without_texts: dict[str, Sequence[StoredMessage]] = {}
        self._found: dict[str, Revision | None] = {}
        self._left_alone = LeftAlone(run)
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
        return [node for id_, node in sorted(found.items()) if id_ not in self._outputs]

    async def read_ahead(self, windows: Sequence[Node]) -> None:
        """Read what a page of windows is made from, and look up the texts made from the same."""
        run, level_plan = self._run, self._run.plan(1)
        self._inputs, self._without_texts = {}, {}
        wanted: dict[str, None] = {}
        for node, messages in await read_windows_at_once(run, windows):
            inputs = self._read_without_texts(node, messages)
            if inputs is None:
                inputs = from_messages(node, messages, count=run.counter.count)
            else:
                self._without_texts[node.id] = messages
            self._inputs[node.id] = inputs
            if not self._is_verbatim(node, inputs):
                wanted[plan.node_hash(node, inputs, level_plan.strategy)] = None
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

    def _with_texts(self, node: Node, inputs: Inputs) -> Inputs:
        """Return the inputs with their texts."""
        messages = self._without_texts.get(node.id)
        if messages is None:
            return inputs
        return from_messages(node, messages, count=self._run.counter.count)

    def _is_verbatim(self, node: Node, inputs: Inputs) -> bool:
        """Return whether a node's text is copied from its inputs, without a call."""
        return node.verbatim or not (inputs.sources or node.id in self._without_texts)

    async def plan_outdated(self, node: Node) -> None:
        """Plan a node that will be marked dirty, unless it is planned already."""
        if node.id not in self._outputs:
            await self.plan_node(status.mark_dirty(node))

    async def plan_node(self, node: Node) -> None:
        """Plan one node."""
        if status.standing(node, now=self._run.now()) == "leased":
            self._outputs[node.id] = f"leased {node.id}"
            self._max_tokens[node.id] = self._limit(node)
            return
        if any(child in self._outputs for child in node.children):
            await self._plan_above(node)
            return
        if await self._left_alone.holds(node):
            return
        inputs = self._inputs.get(node.id) or await read_inputs(self._run, node)
        if inputs is None:
            return
        serving = await read_serving(self._run, node)
        if serving and node.dirty and not node.forced and self._run.is_clean(node, inputs, serving):
            self._outputs[node.id], self._max_tokens[node.id] = serving.output_hash, serving.tokens
            return
        await self._plan_ready(node, inputs, serving)
        if serving and serving.output_hash != self._outputs[node.id]:
            await self._mark_parent(node)

    async def _plan_ready(self, node: Node, inputs: Inputs, serving: Revision | None) -> None:
        """Plan a node whose inputs exist."""
        run, level_plan = self._run, self._run.plan(node.level)
        if self._is_verbatim(node, inputs):
            self.tally.kept(node)
            revision = verbatim_revision(node, inputs, level_plan, count=run.counter.count)
            self._record_text(node, revision)
            return
        length = self._length(node, inputs.tokens)
        wanted = plan.node_hash(node, inputs, level_plan.strategy)
        if await self._reuses(node, wanted, length):
            return
        attempts = await count_attempts(run, wanted)
        prompts = prompts_due(run, node, attempts)
        if not prompts:
            self._plan_stand_in(node, inputs, serving, limit=length.limit)
            return
        room = self._room(node, inputs.tokens, length.limit)
        count = run.counter.count
        split = partial(
            plan.in_parts, inputs, level=node.level, config=run.config, room=room, count=count
        )
        length_of_all = sum(len(source.text) for source in inputs.sources)
        parts = split() if length_of_all <= LONG else await asyncio.to_thread(split)
        calls = len(parts)
        if calls > 1:
            sizes = [await tokens_of(count, [source.text for source in part]) for part in parts]
            shares = plan.shares(length, sizes)
            keys = part_keys(node, inputs, parts, shares, strategy=level_plan.strategy)
            calls -= await count_stored(run, keys)
        self._max_tokens[node.id] = length.limit
        windows = await self._window_requests(node, self._room(node))
        tokens_in = inputs.tokens
        if not run.is_deterministic and not self._is_counted(node, wanted):
            if self._sizes.is_rendered(node):
                inputs = self._with_texts(node, inputs)
            tokens_in = await self._sizes.of_inputs(node, inputs, length, calls, of=len(parts))
        self._outputs[node.id] = self._count_call(
            node,
            wanted,
            parts=calls,
            tokens_in=tokens_in,
            windows=windows,
            prompts=prompts,
            retried=attempts.count > 0,
        )

    def _plan_stand_in(
        self, node: Node, inputs: Inputs, serving: Revision | None, *, limit: int
    ) -> None:
        """Plan a node that the model is not asked for: its stand-in is made without a call."""
        if serving is not None and plan.is_stand_in_of(serving, node.level, inputs):
            self._outputs[node.id], self._max_tokens[node.id] = serving.output_hash, serving.tokens
            return
        self.tally.kept(node)
        self._max_tokens[node.id] = limit
        outputs = inputs.outputs
        self._outputs[node.id] = f"extract {input_hash(level=0, strategy='', outputs=outputs)}"

    async def _plan_above(self, node: Node) -> None:
        """Plan a node that depends on children which are only planned themselves."""
        run, level_plan = self._run, self._run.plan(node.level)
        existing = [child for child in node.children if child not in self._outputs]
        stored = await run.tree.nodes(existing) if existing else []
        made = [(child.id, child.revision) for child in stored]
        found = await run.tree.revisions(made) if made else []
        texts = {revision.node_id: revision for revision in found}
        said = {id_: revision.output_hash for id_, revision in texts.items()} | self._outputs
        outputs = [said.get(child, child) for child in node.children]
        if await self._keeps_text(node, outputs):
            return
        texts |= {
            child: self._short_texts.pop(child)
            for child in node.children
            if child in self._short_texts
        }
        if node.verbatim:
            self.tally.kept(node)
            children = await run.tree.nodes(node.children)
            if all(child.id in texts for child in children):
                pairs = [(child, texts[child.id]) for child in children]
                inputs = from_children(pairs, verbatim=True)
                copied = verbatim_revision(node, inputs, level_plan, count=run.counter.count)
                self._record_text(node, copied)
            else:
                self._outputs[node.id] = f"kept {input_hash(level=0, strategy='', outputs=outputs)}"
                self._max_tokens[node.id] = sum(
                    self._max_tokens_of(child, texts) for child in node.children
                )
        else:
            sizes = {id_: revision.tokens for id_, revision in texts.items()} | self._tokens
            known = [sizes.get(child) for child in node.children]
            most = [self._max_tokens_of(child, texts) for child in node.children]
            await self._plan_call_above(node, level_plan, outputs, known, most)
        if node.revision:
            await self._mark_parent(node)

    async def _keeps_text(self, node: Node, outputs: Sequence[str]) -> bool:
        """Return whether the children of a dirty node will have the texts it was made from."""
        if not node.dirty or node.forced:
            return False
        serving = await read_serving(self._run, node)
        inputs = Inputs((), tuple(outputs), (), 0, "conversation")
        if serving is None or not self._run.is_clean(node, inputs, serving):
            return False
        self._outputs[node.id], self._tokens[node.id] = serving.output_hash, serving.tokens
        self._max_tokens[node.id] = serving.tokens
        return True

    async def _plan_call_above(
        self,
        node: Node,
        level_plan: plan.LevelPlan,
        outputs: Sequence[str],
        known: Sequence[int | None],
        most: Sequence[int],
    ) -> None:
        """Plan a call, or the reuse of a text made from what the children will have.

        ``known`` are the tokens of the children's texts, None where a text does not exist yet; then
        no text can have been made from it. ``most`` are the most tokens that they can have.
        """
        wanted = input_hash(level=node.level, strategy=level_plan.strategy, outputs=outputs)
        tokens = [each for each in known if each is not None]
        length = self._length(node, sum(tokens) if len(tokens) == len(known) else node.input_tokens)
        if len(tokens) == len(known) and await self._reuses(node, wanted, length):
            return
        room = self._room(node, node.input_tokens, length.limit)
        parts = 1 if room is None else max(1, math.ceil(node.input_tokens / room))
        self._max_tokens[node.id] = self._length(node, sum(most)).limit
        least = self._room(node)
        worst = most_parts(most, least, count=self._run.counter.count)
        windows = await self._window_requests(node, least)
        likely = sum(tokens) if len(tokens) == len(known) else node.input_tokens
        if not self._run.is_deterministic and not self._is_counted(node, wanted):
            likely = await self._sizes.of_children(node, likely, length, parts)
        self._outputs[node.id] = self._count_call(
            node, wanted, parts=parts, tokens_in=likely, most=worst, windows=windows
        )

    async def _window_requests(self, node: Node, room: int | None) -> int:
        """Return the most requests that a draft from the windows below ``node`` takes."""
        if node.level < plan.FROM_WINDOWS or room is None or self._run.is_deterministic:
            return 1
        tree = self._run.tree
        below = await tree.level(1, *node.windows)
        existing = [each for each in below if each.id not in self._max_tokens and each.revision]
        found = await tree.revisions([(each.id, each.revision) for each in existing])
        texts = {revision.node_id: revision for revision in found}
        sizes = [self._max_tokens_of(each.id, texts, each) for each in below]
        return most_parts(sizes, room, count=self._run.counter.count)

    def _max_tokens_of(
        self, id_: str, texts: Mapping[str, Revision], node: Node | None = None
    ) -> int:
        """Return the most tokens that a node's text can have, as planned or as stored."""
        if id_ in self._max_tokens:
            return self._max_tokens[id_]
        if id_ in texts:
            return texts[id_].tokens
        return self._limit(node) if node else 0

    def _limit(self, node: Node) -> int:
        """Return the most tokens that a text of a node can have, whatever it is made from."""
        return self._length(node, _MANY).limit

    def _length(self, node: Node, tokens: int) -> plan.Lengths:
        run = self._run
        return plan.lengths(node, tokens, hard_ratio=run.policy.hard_ratio, config=run.config)

    async def _reuses(self, node: Node, wanted: str, length: plan.Lengths) -> bool:
        """Plan the reuse of an existing text; return whether there is one that fits."""
        before: Revision | None = None
        if not node.forced:
            known = wanted in self._found
            before = self._found[wanted] if known else await self._run.store.reusable(wanted)
        if before is None or not plan.may_reuse(before, length):
            return False
        self.tally.reused(node)
        self._record_text(node, before)
        return True

    def _record_text(self, node: Node, said: Revision) -> None:
        """Record a node's text, and the revision where a parent may copy it verbatim."""
        self._outputs[node.id], self._tokens[node.id] = said.output_hash, said.tokens
        self._max_tokens[node.id] = said.tokens
        if node.allotted_tokens <= self._run.config.verbatim_tokens:
            self._short_texts[node.id] = said

    def _count_call(
        self,
        node: Node,
        wanted: str,
        *,
        parts: int,
        tokens_in: int,
        most: int | None = None,
        windows: int,
        prompts: int = PROMPTS,
        retried: bool = False,
    ) -> str:
        """Count a call, or the reuse of one that is made for an equal node, of any session."""
        if self._is_counted(node, wanted):
            self.tally.shared(node, most=max(parts, most or 0), windows=windows)
        else:
            self.requests.add(wanted)
            self.tally.called(
                node,
                parts=parts,
                tokens_in=tokens_in,
                most=most,
                windows=windows,
                prompts=prompts,
                retried=retried,
                tokens_out=plan.asked_tokens(node, self._run.config),
            )
        return f"answer to {wanted}"

    def _is_counted(self, node: Node, wanted: str) -> bool:
        """Return whether a call for an equal node is counted already, which this node shares."""
        counted = wanted in self.requests or wanted in self._run.shared.planned
        return counted and not node.forced

    def _room(self, node: Node, tokens: int = 0, answer: int = 0) -> int | None:
        """Return the room for inputs of so many tokens, or the least room for any inputs."""
        window = self._run.llm.context_window
        if window is None:
            return None
        prompt = prompt_tokens(self._run.plan(node.level), count=self._run.counter.count)
        return plan.room_for_inputs(
            window, inputs=tokens, answer=answer, prompt=prompt, margin=self._run.margin
        )

    async def _mark_parent(self, node: Node) -> None:
        """Note that the parent of a node with a new text gets a new text too."""
        if node.parent is None:
            return
        for parent in await self._run.tree.nodes([node.parent]):
            if parent.revision:
                self._dirtied.setdefault(parent.level, {})[parent.id] = parent
