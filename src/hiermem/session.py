"""One conversation, asynchronous: what an application does with a session.

The one rule: nothing is decided here. A call checks its arguments, hands them to the engine and
gives back what it answers. Sessions are made by ``hiermem.memory``; ``hiermem.sync_session`` is the
same, blocking.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Literal, overload

from hiermem.config import ExtractionOptions, HierarchyConfig
from hiermem.core import arguments
from hiermem.core.change.edit import OnEdit
from hiermem.core.change.erasing import Forks
from hiermem.core.change.receipts import EditReport, Receipt
from hiermem.core.context.profile import ContextProfile
from hiermem.core.context.selection import AsyncContextSelection, ContextBudget, ShownSummary
from hiermem.core.extraction.plan import ExtractionProgress, ExtractionReport
from hiermem.core.generation.plan import UpdatePlan, UpdateProgress, UpdateReport
from hiermem.core.metrics import Metrics
from hiermem.core.search.embedded import EmbeddingReport
from hiermem.core.search.filters import read_filters
from hiermem.core.search.hits import Evidence, Hit
from hiermem.core.text.policy import MAX_NAME, check, check_name
from hiermem.engine import append as ingest
from hiermem.engine import change, feedback, forking, journal, remake, tree
from hiermem.engine.append import About, Messages, Seen
from hiermem.engine.context import Strategy
from hiermem.engine.graph import tri_vector
from hiermem.engine.handle import Handle
from hiermem.engine.metrics import metrics as measure
from hiermem.engine.sharing import Shared
from hiermem.engine.tree import SessionStatus, Tree
from hiermem.engine.update import Strategy as UpdateStrategy
from hiermem.engine.update import update as run_update
from hiermem.errors import UsageError
from hiermem.extractor import SemanticGraphExtractor
from hiermem.parts import Parts
from hiermem.prices import Prices
from hiermem.protocols import RunRecord
from hiermem.trivector import TriVector
from hiermem.types import Content, Role, Span, StoredMessage, Summary

__all__ = ["AsyncSession"]


def _check_update(
    *,
    level: Any,
    strategy: Any,
    wait: Any,
    on_progress: Any,
    max_calls: Any,
    max_tokens: Any,
    deadline: Any,
    dry_run: Any,
) -> None:
    """Refuse arguments of an update that mean nothing. Raises UsageError."""
    if level is not None:
        arguments.whole(level, "level", least=1)
    arguments.caps(max_calls=max_calls, max_tokens=max_tokens, deadline=deadline)
    if on_progress is not None:
        arguments.function(on_progress, "on_progress")
    arguments.one_of(strategy, "strategy", ("incremental", "full"))
    arguments.switch(wait, "wait")
    arguments.switch(dry_run, "dry_run")
    if strategy == "full" and level is not None:
        raise UsageError("level goes with strategy='incremental'; a full re-pack makes all levels")
    if strategy == "full" and not wait and not dry_run:
        raise UsageError("a full re-pack is waited for; leave wait=True, or give it a task")


class AsyncSession:
    """One conversation: messages go in, summaries grow over them, contexts come out."""

    def __init__(self, parts: Parts, about: About) -> None:
        self._parts = parts
        self._about = about

    @property
    def id(self) -> str:
        """Give the session's id."""
        return self._about.id

    @property
    def _handle(self) -> Handle:
        return self._parts.opened()

    async def append(self, *messages: Messages) -> list[int]:
        """Append messages (or iterables of them), all or none; give their indices in order.

        When it returns they are durable. A key seen before with the same content is a no-op that
        gives the index it has.

        Raises MessageConflictError, InvalidMessageError, InvalidTextError, SessionClosedError,
        CounterMismatchError; in each case nothing was written.
        """
        return await ingest.append(self._handle, self._about, messages)

    @overload
    async def update(
        self,
        level: int | None = None,
        *,
        strategy: UpdateStrategy = "incremental",
        wait: bool = True,
        on_progress: Callable[[UpdateProgress], object] | None = None,
        max_calls: int | None = None,
        max_tokens: int | None = None,
        deadline: float | None = None,
        dry_run: Literal[False] = False,
    ) -> UpdateReport: ...

    @overload
    async def update(
        self,
        level: int | None = None,
        *,
        strategy: UpdateStrategy = "incremental",
        wait: bool = True,
        on_progress: Callable[[UpdateProgress], object] | None = None,
        max_calls: int | None = None,
        max_tokens: int | None = None,
        deadline: float | None = None,
        dry_run: Literal[True],
    ) -> UpdatePlan: ...

    async def update(
        self,
        level: int | None = None,
        *,
        strategy: UpdateStrategy = "incremental",
        wait: bool = True,
        on_progress: Callable[[UpdateProgress], object] | None = None,
        max_calls: int | None = None,
        max_tokens: int | None = None,
        deadline: float | None = None,
        dry_run: bool = False,
    ) -> UpdateReport | UpdatePlan:
        """Make what is missing or out of date, lowest level first; give what was done.

        ``strategy="full"`` re-packs the whole session under the present configuration (the memory's
        where it was given one, else the session's own) beside the tree that serves, which the new
        one replaces when all of it is made; one that ended early is gone on with by the next.

        ``level`` limits it to that level and those below. With ``wait=False`` level 1 is made now
        and the rest in the background. ``max_calls``, ``max_tokens`` and ``deadline`` (seconds) end
        the run before they are exceeded; what is left stays pending. ``dry_run`` gives the plan of
        what would be made, calls no model and writes nothing.
        """
        _check_update(
            level=level,
            strategy=strategy,
            wait=wait,
            on_progress=on_progress,
            max_calls=max_calls,
            max_tokens=max_tokens,
            deadline=deadline,
            dry_run=dry_run,
        )
        if dry_run:
            plan: UpdatePlan = await self._run(self._handle, level, strategy=strategy, dry_run=True)
            return plan
        limits: dict[str, Any] = {
            "strategy": strategy,
            "on_progress": on_progress,
            "max_calls": max_calls,
            "max_tokens": max_tokens,
            "deadline": deadline,
        }
        report: UpdateReport
        if wait:
            report = await self._run(self._handle, level, **limits)
            self._parts.embed_behind(self._about.id)
            return report
        began = time.monotonic()
        report = await self._run(self._handle, 1, **limits)
        if (level is None or level > 1) and report.stopped is None:
            # Both parts together are one update: what the first spent, the second may not.
            if max_calls is not None:
                limits["max_calls"] = max(0, max_calls - report.calls)
            if max_tokens is not None:
                limits["max_tokens"] = max(0, max_tokens - report.tokens)
            if deadline is not None:
                limits["deadline"] = max(0.0, deadline - (time.monotonic() - began))
            self._parts.behind(self._run_and_embed(self._handle, level, **limits))
        return report

    async def _run_and_embed(self, handle: Handle, level: int | None, **settings: Any) -> None:
        await self._run(handle, level, **settings)
        self._parts.embed_behind(self._about.id)

    async def _run(
        self, handle: Handle, level: int | None, *, strategy: UpdateStrategy, **settings: Any
    ) -> Any:
        parts = self._parts
        record = await handle.record(self._about.id)
        return await run_update(
            handle.store,
            self._about.id,
            llm=parts.llm,
            fallback=parts.fallback,
            counter=handle.counter,
            config=handle.config_for(record, repack=strategy == "full"),
            policy=handle.update_policy,
            prompts=parts.prompts,
            now=handle.clock,
            level=level,
            strategy=strategy,
            shared=Shared(allowances=parts.allowances, in_hand=handle.in_hand),
            **settings,
        )

    async def context(
        self,
        max_tokens: int = 8_000,
        *,
        query: str | None = None,
        recall_tokens: int | None = None,
        system: str | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
        profile: ContextProfile | None = None,
        view: str = "default",
        strategy: Strategy = "cut",
        sticky: bool = True,
        cache_cold: bool = False,
        allow_omission: bool = False,
        reserve_for_messages: int | None = None,
        reserve_for_output: int = 0,
    ) -> AsyncContextSelection:
        """Give the best context that fits ``max_tokens``: the whole history, each message once.

        With a ``query``, what answers it stands at the end, verbatim, in at most ``recall_tokens``
        (0.4 of the budget by default); nothing that stands verbatim before is repeated, and what
        stands before does not depend on the query. ``profile`` says what an agent prefers to see.
        ``reserve_for_messages`` sizes the verbatim zone; by default the policy does. See
        ContextWindowManager.select_optimal_context.
        """
        budget = ContextBudget(
            max_tokens=max_tokens,
            reserve_for_messages=reserve_for_messages,
            reserve_for_output=reserve_for_output,
            system=arguments.system_prompt(system),
            tools=arguments.tool_schemas(tools),
        )
        self._handle  # noqa: B018 - refuses a closed memory
        return await self._parts.manager.select_optimal_context(
            self._about.id,
            budget,
            strategy=strategy,
            view=view,
            sticky=sticky,
            cache_cold=cache_cold,
            allow_omission=allow_omission,
            query=query,
            recall_tokens=recall_tokens,
            profile=profile,
        )

    async def search(
        self,
        query: str,
        limit: int = 10,
        *,
        levels: Iterable[int] | None = None,
        span: tuple[int, int] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        threads: Iterable[str] | None = None,
        roles: Iterable[Role] | None = None,
        tags: Iterable[str] | None = None,
        entities: Iterable[str] | None = None,
        semantic_dedup: bool = True,
    ) -> list[Hit]:
        """Give up to ``limit`` messages and summaries that answer ``query``, best first.

        It works from the first message on, whatever has been summarised so far. ``query`` is read
        as words: it has no operators, and no text is refused. Of a long message the passage that
        answers best is given, with its offsets.

        The filters let pass what meets all of them, and within one of them any of its values:
        ``levels`` (0 for messages), ``span`` (message indices, start and stop), ``since`` and
        ``until`` (the latter not included), ``threads``, ``roles`` (which no summary has), ``tags``
        and ``entities`` (a message has those of the summary of its window). ``semantic_dedup``
        leaves out messages that repeat a better one.

        Raises NotFoundError where the session has no message yet.
        """
        from hiermem.engine import search

        filters = read_filters(
            levels=levels,
            span=span,
            since=since,
            until=until,
            threads=threads,
            roles=roles,
            tags=tags,
            entities=entities,
        )
        question = search.Question(self.id, query, filters, semantic_dedup)
        return await search.search(self._handle, question, limit)

    async def recall(
        self,
        query: str,
        max_tokens: int = 1_000,
        *,
        neighbours: int = 0,
        span: tuple[int, int] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        threads: Iterable[str] | None = None,
        roles: Iterable[Role] | None = None,
        tags: Iterable[str] | None = None,
        entities: Iterable[str] | None = None,
        semantic_dedup: bool = True,
    ) -> Evidence:
        """Give the messages that answer ``query`` best, verbatim, in ``max_tokens`` at most.

        They come in the order they were said; of long ones the passages that matter. The budget
        pays for everything in ``text``: what was said, who said it and the dates. What stands
        around a hit is weighed already; ``neighbours`` asks for so many passages before and after
        each in any case. The filters are those of ``search``.

        Raises NotFoundError where the session has no message yet.
        """
        from hiermem.engine import search

        filters = read_filters(
            span=span,
            since=since,
            until=until,
            threads=threads,
            roles=roles,
            tags=tags,
            entities=entities,
        )
        question = search.Question(self.id, query, filters, semantic_dedup)
        return await search.recall(self._handle, question, max_tokens, neighbours=neighbours)

    async def fill_budget(
        self, hits: Iterable[Hit], max_tokens: int, *, neighbours: int = 1
    ) -> Evidence:
        """Pack what hits rest on into ``max_tokens``, verbatim, the first hit first.

        Of a summary the messages are packed that it was found for. ``neighbours`` is how many
        passages before and after each are taken along, as far as they fit. It is given in the order
        it was said.
        """
        from hiermem.engine import search

        return await search.fill_budget(
            self._handle, self.id, hits, max_tokens, neighbours=neighbours
        )

    async def embed(self) -> EmbeddingReport:
        """Make the vectors of messages and summaries that are missing; give what was done.

        ``update`` does so in the background. It is resumed where it was cut off.

        Raises UsageError where the memory has no embedder, EmbedderMismatchError where the session
        has another one's vectors, InvalidVectorError, and what the embedder raises.
        """
        from hiermem.engine import embedding

        return await embedding.embed(self._handle, self.id)

    async def extract(
        self,
        options: ExtractionOptions | None = None,
        *,
        on_progress: Callable[[ExtractionProgress], object] | None = None,
        max_calls: int | None = None,
        max_tokens: int | None = None,
        deadline: float | None = None,
    ) -> ExtractionReport:
        """Make one TriVector of the session: a graph, what is open, where it is going.

        See SemanticGraphExtractor.execute_tri_vector_extraction.
        """
        if options is not None and not isinstance(options, ExtractionOptions):
            raise UsageError(f"options is {type(options).__name__}; it must be ExtractionOptions")
        if on_progress is not None:
            arguments.function(on_progress, "on_progress")
        arguments.caps(max_calls=max_calls, max_tokens=max_tokens, deadline=deadline)
        parts = self._parts
        extractor = SemanticGraphExtractor.over(self._handle, parts.llm, parts.prompts)
        return await extractor.execute_tri_vector_extraction(
            self._about.id,
            options,
            on_progress=on_progress,
            max_calls=max_calls,
            max_tokens=max_tokens,
            deadline=deadline,
        )

    async def tri_vector(self) -> TriVector | None:
        """Give the newest result of ``extract``, or None where there is none."""
        return await tri_vector(self._handle, self._about.id)

    async def expand(
        self, node: Summary | ShownSummary | Hit | str, depth: int | None = 1
    ) -> tuple[Summary | StoredMessage, ...]:
        """Go ``depth`` levels down from a summary, a hit or an id; None goes to the messages.

        A message that was hit gives itself, whole.
        """
        return await tree.expand(self._handle, self._about.id, node, depth)

    async def edit(self, index: int, content: Content, *, on_edit: OnEdit = "flag") -> EditReport:
        """Replace the content of a message; what it said before stays readable as a version.

        Windows keep their bounds. ``on_edit="flag"`` marks the summaries above it as stale, which
        go on serving; with "rebuild" the next update makes them anew, as far up as their texts
        come out different.

        Raises NotFoundError, SessionClosedError, MessageWithdrawnError where it was erased or
        quarantined, InvalidMessageError and InvalidTextError; in each case nothing was written.
        """
        return await change.edit(
            self._handle,
            self._about.id,
            index,
            content,
            on_edit=on_edit,
            on_bad_text=self._about.on_bad_text,
        )

    async def versions(self, index: int) -> tuple[StoredMessage, ...]:
        """Give what a message was before its edits, oldest first; () where it was not edited."""
        return await tree.versions(self._handle, self._about.id, index)

    async def erase(self, indices: Iterable[int], *, forks: Forks = "all") -> Receipt:
        """Erase messages, and everything that was made of them, for good; say what went.

        An empty message stays in each one's place. With ``forks="all"`` the sessions that share
        them lose them too; "keep" leaves those alone, and the receipt names them.

        Raises NotFoundError where there is no such message; nothing was erased then.
        """
        return await change.erase(self._handle, self._about.id, indices, forks=forks)

    async def quarantine(self, indices: Iterable[int], *, forks: Forks = "all") -> Receipt:
        """Take messages out of everything that is made of them; they stay readable as they are.

        Against input that should never have been believed. Raises NotFoundError.
        """
        return await change.quarantine(self._handle, self._about.id, indices, forks=forks)

    async def fork(
        self, new_id: str, *, at: int | None = None, title: str | None = None
    ) -> AsyncSession:
        """Begin a session that shares this one's messages before ``at`` (None: all of them).

        What was sealed before ``at`` keeps its summaries, without a model call.

        Raises SessionExistsError, and NotFoundError for an ``at`` beyond the end.
        """
        about = replace(
            self._about,
            id=check_name(new_id, what="new_id"),
            title=None if title is None else check(title, what="title", cap=MAX_NAME),
            participants=(),
            seen=Seen(),
        )
        await forking.fork(self._handle, self._about.id, about.id, at=at, title=about.title)
        return AsyncSession(self._parts, about)

    async def recompress(
        self, level: int, span: tuple[int, int] | Span | None = None
    ) -> tuple[str, ...]:
        """Ask for new texts of a level's summaries; give the ids of those that are marked.

        ``span`` is a range of message indices, (start, stop), or a Span: those that cover any of
        it; None means all, an empty one none. The next update makes them; until then the texts
        that they have serve.
        """
        arguments.whole(level, "level", least=1)
        given = None if span is None else arguments.stretch(span, "span")
        return await remake.recompress(self._handle, self._about.id, level, given)

    async def reconfigure(self, config: HierarchyConfig) -> None:
        """Seal and group what comes from now on under another configuration.

        What is sealed stays as it is; ``update(strategy="full")`` re-packs that too.

        Raises SessionClosedError.
        """
        if not isinstance(config, HierarchyConfig):
            raise UsageError(f"config is {type(config).__name__}; it must be a HierarchyConfig")
        await remake.reconfigure(self._handle, self._about.id, config)

    async def messages(self, start: int = 0, stop: int | None = None) -> list[StoredMessage]:
        """Give the messages from ``start`` up to and without ``stop``, verbatim."""
        return await tree.messages(self._handle, self._about.id, start, stop)

    async def summaries(self, level: int | None = None) -> list[Summary]:
        """Give the summaries of a level, or of all levels, lowest first."""
        return await tree.summaries(self._handle, self._about.id, level)

    async def forest(self) -> tuple[Tree, ...]:
        """Give the trees of summaries, oldest first."""
        return await tree.forest(self._handle, self._about.id)

    async def status(self) -> SessionStatus:
        """Tell where the session stands."""
        return await tree.status(self._handle, self._about.id)

    async def runs(self, *, limit: int = 100) -> list[RunRecord]:
        """List the journalled runs of this session, newest first."""
        return await journal.runs(self._handle, limit, subject=self._about.id)

    async def metrics(self, prices: Prices | None = None) -> Metrics:
        """Measure the session: how much shorter it is, what that cost, what was kept.

        With ``prices`` it says too what was saved and spent in money.
        """
        return await measure(self._handle, self._about.id, prices)

    async def feedback(
        self,
        target: Hit | Summary | ShownSummary | StoredMessage | str,
        *,
        score: float,
        note: str = "",
    ) -> None:
        """Say how good a summary is, from 0 to 1; the mean is in the metrics.

        ``target`` is a hit, a summary, a message or an id. Raises NotFoundError where there is no
        such, and for a summary of a tree that a re-pack has replaced: its id means another now.
        """
        await feedback.give(self._handle, self._about.id, target, score=score, note=note)

    async def flush(self) -> None:
        """Seal each thread's open window at its last whole point."""
        await ingest.flush(self._handle, self._about.id)

    async def tick(self, now: datetime) -> None:
        """Apply the time rules as if a message arrived ``now`` (timezone-aware)."""
        arguments.moment(now, "now")
        await ingest.tick(self._handle, self._about.id, now)

    async def close(self) -> None:
        """Seal everything up to one root and archive the session."""
        await ingest.close(self._handle, self._about.id)

    async def reopen(self) -> None:
        """Make a closed session writable again."""
        await ingest.reopen(self._handle, self._about.id)
