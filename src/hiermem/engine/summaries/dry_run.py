"""Works out what an update would do, without doing it: the dry run.

It walks the unfinished nodes in the run's own order and asks the same functions of ``core`` what
each would take. The one rule: nothing is written and no model is called. What a node would say is
unknown, so its input hash stands for it: two nodes made from the same inputs say the same.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import Final

from hiermem.core.summaries import plan, status
from hiermem.core.summaries.agenda import PAGE
from hiermem.core.summaries.inputs import Inputs, from_children, most_parts
from hiermem.core.text.hashes import input_hash
from hiermem.engine.calls.token_count import tokens_of
from hiermem.engine.summaries.ask import part_keys, prompt_tokens
from hiermem.engine.summaries.node import verbatim_revision
from hiermem.engine.summaries.outdated import outdated
from hiermem.engine.summaries.parts import count_kept
from hiermem.engine.summaries.run import Workshop, read_inputs, read_serving
from hiermem.types import Node, Revision

#: More tokens than anything has.
_MANY: Final = 10**9


async def foresee(
    shop: Workshop, counts: Mapping[int, int], loose: Sequence[Node], *, following: bool = True
) -> plan.UpdatePlan:
    """Plan an update of the first ``counts`` nodes of each level, and of the ``loose`` ones.

    ``following`` says whether what was made in another way than the present one counts too, where
    the policy wants it.
    """
    sight = _Sight(shop)
    for level, stop in sorted(counts.items()):
        after = -1
        while True:
            page = await shop.store.unfinished(shop.session_id, level, after, PAGE)
            for node in page:
                if node.ordinal < stop:
                    await sight.look(node)
            if len(page) < PAGE or page[-1].ordinal >= stop:
                break
            after = page[-1].ordinal
        async for page in outdated(shop, level, stop if following else 0):
            for node in page:
                await sight.look_anew(node)
        for node in sight.soiled(level):
            await sight.look(node)
    for node in loose:
        await sight.look(node)
    shop.shared.foreseen.update(sight.asked)
    return sight.tally.plan()


class _Sight:
    """What is foreseen so far: for each node that gets a text, a name for what it will say."""

    def __init__(self, shop: Workshop) -> None:
        self._shop = shop
        self._says: dict[str, str] = {}
        self._small: dict[str, Revision] = {}
        self._tokens: dict[str, int] = {}
        self._most: dict[str, int] = {}
        self.asked: set[str] = set()
        self._soiled: dict[int, dict[str, Node]] = {}
        self.tally = plan.Tally(
            policy=shop.policy,
            remote=shop.llm.remote,
            steady=shop.steady,
            prices=getattr(shop.llm, "prices", None),
        )

    def soiled(self, level: int) -> list[Node]:
        """Give the made nodes of ``level`` that lose an input they were made from."""
        found = self._soiled.pop(level, {})
        return [node for id_, node in sorted(found.items()) if id_ not in self._says]

    async def look_anew(self, node: Node) -> None:
        """Foresee a made node that will be marked dirty, unless it was looked at already."""
        if node.id not in self._says:
            await self.look(status.soil(node))

    async def look(self, node: Node) -> None:
        """Foresee one node."""
        if status.standing(node, now=self._shop.now()) == "leased":
            self._says[node.id] = f"leased {node.id}"
            self._most[node.id] = self._longest(node)
            return
        if any(child in self._says for child in node.children):
            await self._look_above(node)
            return
        inputs = await read_inputs(self._shop, node)
        if inputs is None:
            return
        serving = await read_serving(self._shop, node)
        if (
            serving
            and node.dirty
            and not node.forced
            and self._shop.is_clean(node, inputs, serving)
        ):
            self._says[node.id], self._most[node.id] = serving.output_hash, serving.tokens
            return
        await self._look_at(node, inputs)
        if serving and serving.output_hash != self._says[node.id]:
            await self._soil(node)

    async def _look_at(self, node: Node, inputs: Inputs) -> None:
        """Foresee a node whose inputs are there."""
        shop, level_plan = self._shop, self._shop.plan(node.level)
        if node.verbatim or not inputs.sources:
            self.tally.kept(node)
            made = verbatim_revision(node, inputs, level_plan, count=shop.counter.count)
            self._keep(node, made)
            return
        length = self._length(node, inputs.tokens)
        wanted = plan.node_hash(node, inputs, level_plan.strategy)
        if await self._reuses(node, wanted, length):
            return
        room = self._room(node, inputs.tokens, length.limit)
        count = shop.counter.count
        parts = await asyncio.to_thread(
            plan.in_parts, inputs, level=node.level, config=shop.config, room=room, count=count
        )
        calls = len(parts)
        if calls > 1:
            sizes = [await tokens_of(count, [source.text for source in part]) for part in parts]
            shares = plan.shares(length, sizes)
            keys = part_keys(node, inputs, parts, shares, strategy=level_plan.strategy)
            calls -= await count_kept(shop, keys)
        self._most[node.id] = length.limit
        windows = await self._from_windows(node, self._room(node))
        self._says[node.id] = self._ask(node, wanted, parts=calls, windows=windows)

    async def _look_above(self, node: Node) -> None:
        """Foresee a node that waits for children which are only foreseen themselves."""
        shop, level_plan = self._shop, self._shop.plan(node.level)
        made = [child for child in node.children if child not in self._says]
        stored = await shop.store.nodes(shop.session_id, made)
        found = await shop.store.revisions(
            shop.session_id, [(child.id, child.revision) for child in stored]
        )
        texts = {revision.node_id: revision for revision in found}
        said = {id_: revision.output_hash for id_, revision in texts.items()} | self._says
        outputs = [said.get(child, child) for child in node.children]
        if await self._stays(node, outputs):
            return
        texts |= {child: self._small.pop(child) for child in node.children if child in self._small}
        if node.verbatim:
            self.tally.kept(node)
            children = await shop.store.nodes(shop.session_id, node.children)
            if all(child.id in texts for child in children):
                pairs = [(child, texts[child.id]) for child in children]
                inputs = from_children(pairs, verbatim=True)
                kept = verbatim_revision(node, inputs, level_plan, count=shop.counter.count)
                self._keep(node, kept)
            else:
                self._says[node.id] = f"kept {input_hash(level=0, strategy='', outputs=outputs)}"
                self._most[node.id] = sum(self._longest_of(child, texts) for child in node.children)
        else:
            sizes = {id_: revision.tokens for id_, revision in texts.items()} | self._tokens
            known = [sizes.get(child) for child in node.children]
            most = [self._longest_of(child, texts) for child in node.children]
            await self._ask_above(node, level_plan, outputs, known, most)
        if node.revision:
            await self._soil(node)

    async def _stays(self, node: Node, outputs: Sequence[str]) -> bool:
        """Foresee that a dirty node's children will say what it was made from, after all."""
        if not node.dirty or node.forced:
            return False
        serving = await read_serving(self._shop, node)
        inputs = Inputs((), tuple(outputs), (), 0, "conversation")
        if serving is None or not self._shop.is_clean(node, inputs, serving):
            return False
        self._says[node.id], self._tokens[node.id] = serving.output_hash, serving.tokens
        self._most[node.id] = serving.tokens
        return True

    async def _ask_above(
        self,
        node: Node,
        level_plan: plan.LevelPlan,
        outputs: Sequence[str],
        known: Sequence[int | None],
        most: Sequence[int],
    ) -> None:
        """Foresee a call, or the reuse of a text that was made from what the children will say.

        ``known`` are the tokens of the children's texts, None where one is still to be asked for;
        nothing was made from a text that nobody has seen. ``most`` are the most they can have.
        """
        wanted = input_hash(level=node.level, strategy=level_plan.strategy, outputs=outputs)
        tokens = [each for each in known if each is not None]
        length = self._length(node, sum(tokens) if len(tokens) == len(known) else node.input_tokens)
        if len(tokens) == len(known) and await self._reuses(node, wanted, length):
            return
        room = self._room(node, node.input_tokens, length.limit)
        parts = 1 if room is None else max(1, math.ceil(node.input_tokens / room))
        self._most[node.id] = self._length(node, sum(most)).limit
        least = self._room(node)
        worst = most_parts(most, least, count=self._shop.counter.count)
        windows = await self._from_windows(node, least)
        self._says[node.id] = self._ask(node, wanted, parts=parts, most=worst, windows=windows)

    async def _from_windows(self, node: Node, room: int | None) -> int:
        """Give the most requests that asking from the windows below ``node`` takes."""
        if node.level < plan.FROM_WINDOWS or room is None or self._shop.steady:
            return 1
        store, session_id = self._shop.store, self._shop.session_id
        below = await store.level(session_id, 1, *node.windows)
        made = [each for each in below if each.id not in self._most and each.revision]
        found = await store.revisions(session_id, [(each.id, each.revision) for each in made])
        texts = {revision.node_id: revision for revision in found}
        sizes = [self._longest_of(each.id, texts, each) for each in below]
        return most_parts(sizes, room, count=self._shop.counter.count)

    def _longest_of(self, id_: str, texts: Mapping[str, Revision], node: Node | None = None) -> int:
        """Give the most tokens that a node's text can have: foreseen, or as it is."""
        if id_ in self._most:
            return self._most[id_]
        if id_ in texts:
            return texts[id_].tokens
        return self._longest(node) if node else 0

    def _longest(self, node: Node) -> int:
        """Give the most tokens that a text of a node can have, whatever it is made from."""
        return self._length(node, _MANY).limit

    def _length(self, node: Node, tokens: int) -> plan.Lengths:
        shop = self._shop
        return plan.lengths(node, tokens, hard_ratio=shop.policy.hard_ratio, config=shop.config)

    async def _reuses(self, node: Node, wanted: str, length: plan.Lengths) -> bool:
        """Foresee the reuse of a text that was made before, if there is one that may be taken."""
        before = None if node.forced else await self._shop.store.reusable(wanted)
        if before is None or not plan.may_reuse(before, length):
            return False
        self.tally.reused(node)
        self._keep(node, before)
        return True

    def _keep(self, node: Node, said: Revision) -> None:
        """Remember what a node will say, and its text where a parent may keep it word for word."""
        self._says[node.id], self._tokens[node.id] = said.output_hash, said.tokens
        self._most[node.id] = said.tokens
        if node.allotted_tokens <= self._shop.config.verbatim_tokens:
            self._small[node.id] = said

    def _ask(
        self, node: Node, wanted: str, *, parts: int, most: int | None = None, windows: int
    ) -> str:
        """Count a call, or the reuse of one that is made for an equal node, of any session."""
        counted = wanted in self.asked or wanted in self._shop.shared.foreseen
        if counted and not node.forced:
            self.tally.shared(node, most=max(parts, most or 0), windows=windows)
        else:
            self.asked.add(wanted)
            self.tally.called(node, parts=parts, most=most, windows=windows)
        return f"answer to {wanted}"

    def _room(self, node: Node, tokens: int = 0, answer: int = 0) -> int | None:
        """Give the room for inputs of so many tokens; the least that there can be for any."""
        window = self._shop.llm.context_window
        if window is None:
            return None
        prompt = prompt_tokens(self._shop.plan(node.level), count=self._shop.counter.count)
        return plan.room_for_inputs(
            window, inputs=tokens, answer=answer, prompt=prompt, margin=self._shop.margin
        )

    async def _soil(self, node: Node) -> None:
        """Note that the made parent of a node with a new text is made anew as well."""
        if node.parent is None:
            return
        for parent in await self._shop.store.nodes(self._shop.session_id, [node.parent]):
            if parent.revision:
                self._soiled.setdefault(parent.level, {})[parent.id] = parent
