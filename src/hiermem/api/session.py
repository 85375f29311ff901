"""One conversation, asynchronous: what an application does with a session.

The one rule: nothing is decided here. A call checks its arguments, hands them to the engine and
gives back what it answers. The messages themselves are in ``hiermem.api.session_log``. Sessions are
made by ``hiermem.api.memory``; ``hiermem.api.sync_session`` is the same, blocking.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Unpack, overload

from hiermem.api.extractor import SemanticGraphExtractor
from hiermem.api.session_log import AsyncLog
from hiermem.config import ExtractionOptions
from hiermem.core import arguments
from hiermem.core.context.profile import ContextProfile
from hiermem.core.context.selection import (
    AsyncContextSelection,
    ContextBudget,
    ContextSelection,
    ShownSummary,
)
from hiermem.core.extraction.plan import ExtractionProgress, ExtractionReport
from hiermem.core.search.embedding_state import EmbeddingReport
from hiermem.core.search.filters import RecallFilters, SearchFilters, read_filters
from hiermem.core.search.hits import Evidence, Hit
from hiermem.core.summaries.plan import UpdatePlan, UpdateProgress, UpdateReport
from hiermem.core.text.policy import MAX_NAME, check, check_name
from hiermem.engine.context.select import Strategy
from hiermem.engine.extraction.graph import tri_vector
from hiermem.engine.handle import Handle
from hiermem.engine.log import fork as forking
from hiermem.engine.log import read
from hiermem.engine.log.append import Seen
from hiermem.engine.summaries.shared import Shared
from hiermem.engine.summaries.update import UpdateStrategy
from hiermem.engine.summaries.update import update as run_update
from hiermem.errors import UsageError
from hiermem.types import Span, StoredMessage, Summary
from hiermem.types.trivector import TriVector


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


class AsyncSession(AsyncLog):
    """One conversation: messages go in, summaries grow over them, contexts come out."""

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
            shared=Shared(allowances=parts.allowances, in_flight=handle.in_flight),
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
        self, query: str, limit: int = 10, **filters: Unpack[SearchFilters]
    ) -> list[Hit]:
        """Give up to ``limit`` messages and summaries that answer ``query``, best first.

        It works from the first message on, whatever has been summarised so far. ``query`` is read
        as words: it has no operators, and no text is refused. Of a long message the passage that
        answers best is given, with its offsets.

        The filters let pass what meets all of them, and within one of them any of its values:
        ``levels`` (0 for messages), ``span`` (message indices, start and stop), ``since`` and
        ``until`` (the latter not included), ``threads``, ``roles`` (which no summary has), ``tags``
        and ``entities`` (a message has those of the summary of its window). ``semantic_dedup``
        leaves out messages that repeat a better one. See SearchFilters.

        Raises NotFoundError where the session has no message yet.
        """
        from hiermem.engine.search import search

        question = search.Question(self.id, query, read_filters(filters))
        return await search.search(self._handle, question, limit)

    async def recall(
        self,
        query: str,
        max_tokens: int = 1_000,
        *,
        neighbours: int = 0,
        beside: AsyncContextSelection | ContextSelection | None = None,
        **filters: Unpack[RecallFilters],
    ) -> Evidence:
        """Give the messages that answer ``query`` best, verbatim, in ``max_tokens`` at most.

        They come in the order they were said; of long ones the passages that matter. The budget
        pays for everything in ``text``: what was said, who said it and the dates. What stands
        around a hit is weighed already; ``neighbours`` asks for so many passages before and after
        each in any case. Nothing is given that stands word for word in the context ``beside``. The
        filters are those of ``search``, without ``levels``.

        Raises NotFoundError where the session has no message yet.
        """
        from hiermem.engine.search import search

        question = search.Question(self.id, query, read_filters(filters, messages_only=True))
        shown = self._shown(beside)
        return await search.recall(
            self._handle, question, max_tokens, neighbours=neighbours, shown=shown
        )

    async def fill_budget(
        self,
        hits: Iterable[Hit],
        max_tokens: int,
        *,
        neighbours: int = 1,
        beside: AsyncContextSelection | ContextSelection | None = None,
    ) -> Evidence:
        """Pack what hits rest on into ``max_tokens``, verbatim, the first hit first.

        Of a summary the messages are packed that it was found for. ``neighbours`` is how many
        passages before and after each are taken along, as far as they fit. It is given in the order
        it was said, without what stands word for word in the context ``beside``.
        """
        from hiermem.engine.search import search

        shown = self._shown(beside)
        return await search.fill_budget(
            self._handle, self.id, hits, max_tokens, neighbours=neighbours, shown=shown
        )

    def _shown(self, beside: Any) -> tuple[Span, ...]:
        """Give what a context shows word for word. Raises UsageError where it is another's."""
        if beside is None:
            return ()
        if not isinstance(beside, (AsyncContextSelection, ContextSelection)):
            raise UsageError(
                f"beside is {type(beside).__name__}; it must be what context() gives, or None"
            )
        if beside.session_id != self.id:
            raise UsageError("beside is a context of another session")
        return beside.verbatim

    async def embed(self) -> EmbeddingReport:
        """Make the vectors of messages and summaries that are missing; give what was done.

        ``update`` does so in the background. It is resumed where it was cut off.

        Raises UsageError where the memory has no embedder, EmbedderMismatchError where the session
        has another one's vectors, InvalidVectorError, and what the embedder raises.
        """
        from hiermem.engine.search import embed as embedding

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
        return await read.expand(self._handle, self._about.id, node, depth)

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
