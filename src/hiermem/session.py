"""One conversation, asynchronous: what an application does with a session.

The one rule: nothing is decided here. A call checks its arguments, hands them to the engine and
gives back what it answers. Sessions are made by ``hiermem.memory``; ``hiermem.sync_session`` is the
same, blocking.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, overload

from hiermem.config import ExtractionOptions
from hiermem.core import arguments
from hiermem.core.extract_plan import ExtractionProgress, ExtractionReport
from hiermem.core.metrics import Metrics, Prices
from hiermem.core.plan import UpdatePlan, UpdateProgress, UpdateReport
from hiermem.core.prompt import PromptTemplate
from hiermem.core.selection import ContextBudget, ContextSelection, ShownSummary
from hiermem.engine import append as ingest
from hiermem.engine import feedback, journal, tree
from hiermem.engine.append import About, Messages
from hiermem.engine.context import ContextWindowManager, Strategy
from hiermem.engine.graph import tri_vector
from hiermem.engine.handle import Handle, config_from
from hiermem.engine.metrics import metrics as measure
from hiermem.engine.tree import SessionStatus, Tree
from hiermem.engine.update import update as run_update
from hiermem.errors import MemoryClosedError, UsageError
from hiermem.extractor import SemanticGraphExtractor
from hiermem.protocols import LLM, RunRecord
from hiermem.trivector import TriVector
from hiermem.types import StoredMessage, Summary

__all__ = ["AsyncSession", "Shared"]

_log = logging.getLogger("hiermem.memory")


@dataclass(slots=True)
class Shared:
    """What a memory shares with its sessions: the parts, and the work that goes on behind them."""

    handle: Handle
    llm: LLM
    fallback: LLM
    prompts: Mapping[str, PromptTemplate | str]
    manager: ContextWindowManager
    background: set[asyncio.Task[Any]] = field(default_factory=set["asyncio.Task[Any]"])
    closed: bool = False

    def opened(self) -> Handle:
        """Give the handle. Raises MemoryClosedError where the memory was closed."""
        if self.closed:
            raise MemoryClosedError("this memory was closed; open it again")
        return self.handle

    def behind(self, work: Awaitable[Any]) -> None:
        """Let ``work`` go on in the background; its failure is logged, the work stays pending."""

        async def run() -> None:
            try:
                await work
            except Exception:  # noqa: BLE001 - nobody awaits it; the log is where it goes
                _log.exception("a background update failed; what it had to make stays pending")

        task = asyncio.get_running_loop().create_task(run())
        self.background.add(task)
        task.add_done_callback(self.background.discard)


def _check_update(
    *,
    level: Any,
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
    if max_calls is not None:
        arguments.whole(max_calls, "max_calls")
    if max_tokens is not None:
        arguments.whole(max_tokens, "max_tokens")
    if deadline is not None:
        arguments.seconds(deadline, "deadline")
    if on_progress is not None:
        arguments.function(on_progress, "on_progress")
    arguments.switch(wait, "wait")
    arguments.switch(dry_run, "dry_run")


class AsyncSession:
    """One conversation: messages go in, summaries grow over them, contexts come out."""

    def __init__(self, shared: Shared, about: About) -> None:
        self._shared = shared
        self._about = about

    @property
    def id(self) -> str:
        """Give the session's id."""
        return self._about.id

    @property
    def _handle(self) -> Handle:
        return self._shared.opened()

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
        wait: bool = True,
        on_progress: Callable[[UpdateProgress], object] | None = None,
        max_calls: int | None = None,
        max_tokens: int | None = None,
        deadline: float | None = None,
        dry_run: bool = False,
    ) -> UpdateReport | UpdatePlan:
        """Make the summaries that are missing, lowest level first; give what was done.

        ``level`` limits it to that level and those below. With ``wait=False`` level 1 is made now
        and the rest in the background. ``max_calls``, ``max_tokens`` and ``deadline`` (seconds) end
        the run before they are exceeded; what is left stays pending. ``dry_run`` gives the plan of
        what would be made, calls no model and writes nothing.
        """
        _check_update(
            level=level,
            wait=wait,
            on_progress=on_progress,
            max_calls=max_calls,
            max_tokens=max_tokens,
            deadline=deadline,
            dry_run=dry_run,
        )
        if dry_run:
            plan: UpdatePlan = await self._run(self._handle, level, dry_run=True)
            return plan
        limits: dict[str, Any] = {
            "on_progress": on_progress,
            "max_calls": max_calls,
            "max_tokens": max_tokens,
            "deadline": deadline,
        }
        report: UpdateReport
        if wait:
            report = await self._run(self._handle, level, **limits)
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
            self._shared.behind(self._run(self._handle, level, **limits))
        return report

    async def _run(self, handle: Handle, level: int | None, **settings: Any) -> Any:
        shared = self._shared
        record = await handle.record(self._about.id)
        return await run_update(
            handle.store,
            self._about.id,
            llm=shared.llm,
            fallback=shared.fallback,
            counter=handle.counter,
            config=config_from(record.config),
            policy=handle.update_policy,
            prompts=shared.prompts,
            now=handle.clock,
            level=level,
            **settings,
        )

    async def context(
        self,
        max_tokens: int = 8_000,
        *,
        system: str | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
        view: str = "default",
        strategy: Strategy = "cut",
        sticky: bool = True,
        cache_cold: bool = False,
        allow_omission: bool = False,
        reserve_for_messages: int | None = None,
        reserve_for_output: int = 0,
    ) -> ContextSelection:
        """Give the best context that fits ``max_tokens``: the whole history, each message once.

        See ContextWindowManager.select_optimal_context. ``reserve_for_messages`` sizes the verbatim
        zone; by default the policy does.
        """
        budget = ContextBudget(
            max_tokens=max_tokens,
            reserve_for_messages=reserve_for_messages,
            reserve_for_output=reserve_for_output,
            system=arguments.system_prompt(system),
            tools=arguments.tool_schemas(tools),
        )
        self._handle  # noqa: B018 - refuses a closed memory
        return await self._shared.manager.select_optimal_context(
            self._about.id,
            budget,
            strategy=strategy,
            view=view,
            sticky=sticky,
            cache_cold=cache_cold,
            allow_omission=allow_omission,
        )

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
        if max_calls is not None:
            arguments.whole(max_calls, "max_calls")
        if max_tokens is not None:
            arguments.whole(max_tokens, "max_tokens")
        if deadline is not None:
            arguments.seconds(deadline, "deadline")
        shared = self._shared
        extractor = SemanticGraphExtractor.over(self._handle, shared.llm, shared.prompts)
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
        self, node: Summary | ShownSummary | str, depth: int | None = 1
    ) -> tuple[Summary | StoredMessage, ...]:
        """Go ``depth`` levels down from a summary or its id; None goes to the messages."""
        return await tree.expand(self._handle, self._about.id, node, depth)

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
        target: Summary | ShownSummary | StoredMessage | str,
        *,
        score: float,
        note: str = "",
    ) -> None:
        """Say how good a summary is, from 0 to 1; the mean is in the metrics.

        ``target`` is a summary, a message or an id. Raises NotFoundError where there is no such.
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
