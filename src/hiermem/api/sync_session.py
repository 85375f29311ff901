"""One conversation, blocking: the names and meanings of ``hiermem.api.session``, without ``await``.

The one rule: nothing but the handing over happens here. An append is handed to the store itself
where nobody else is writing, since waking two threads takes as long as the write.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Unpack, overload

from hiermem.api.loop_thread import Portal
from hiermem.api.session import AsyncSession
from hiermem.config import ExtractionOptions, HierarchyConfig
from hiermem.core.context.profile import ContextProfile
from hiermem.core.context.selection import (
    AsyncContextSelection,
    ContextSelection,
    ShownSummary,
    blocking,
)
from hiermem.core.extraction.plan import ExtractionProgress, ExtractionReport
from hiermem.core.log.edit import OnEdit
from hiermem.core.log.erase import Forks
from hiermem.core.log.receipts import EditReport, Receipt
from hiermem.core.metrics import Metrics
from hiermem.core.search.embedding_state import EmbeddingReport
from hiermem.core.search.filters import RecallFilters, SearchFilters
from hiermem.core.search.hits import Evidence, Hit
from hiermem.core.summaries.plan import UpdatePlan, UpdateProgress, UpdateReport
from hiermem.engine.context.select import Strategy
from hiermem.engine.log import append as ingest
from hiermem.engine.log.append import Messages
from hiermem.engine.log.read import SessionStatus, Tree
from hiermem.engine.summaries.update import UpdateStrategy
from hiermem.types import Content, Span, StoredMessage, Summary
from hiermem.types.prices import Prices
from hiermem.types.transaction import RunRecord
from hiermem.types.trivector import TriVector


class Session:
    """One conversation, blocking. See AsyncSession for what each call means and raises."""

    def __init__(self, portal: Portal, session: AsyncSession) -> None:
        self._portal = portal
        self._session = session

    @property
    def id(self) -> str:
        """Give the session's id."""
        return self._session.id

    def append(self, *messages: Messages) -> list[int]:
        """Append messages (or iterables of them), all or none; give their indices in order."""
        self._portal.check_thread()
        given = ingest.flatten(messages)
        session = self._session
        done = ingest.append_here(session._handle, session._about, given)  # noqa: SLF001
        return self._portal.call(session.append(given)) if done is None else done

    @overload
    def update(
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
    def update(
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

    def update(
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

        ``strategy="full"`` re-packs the whole session.

        ``on_progress`` is called on the memory's own thread, which does nothing else meanwhile: it
        must return soon, must not block, and cannot call this memory (that raises UsageError).
        """
        settings: dict[str, Any] = {
            "strategy": strategy,
            "wait": wait,
            "on_progress": on_progress,
            "max_calls": max_calls,
            "max_tokens": max_tokens,
            "deadline": deadline,
            "dry_run": dry_run,
        }
        work: Coroutine[Any, Any, UpdateReport | UpdatePlan]
        work = self._session.update(level, **settings)
        return self._portal.call(work)

    def context(
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
    ) -> ContextSelection:
        """Give the best context that fits ``max_tokens``: the whole history, each message once.

        With a ``query``, what answers it stands verbatim at the end.
        """
        found = self._portal.call(
            self._session.context(
                max_tokens,
                query=query,
                recall_tokens=recall_tokens,
                system=system,
                tools=tools,
                profile=profile,
                view=view,
                strategy=strategy,
                sticky=sticky,
                cache_cold=cache_cold,
                allow_omission=allow_omission,
                reserve_for_messages=reserve_for_messages,
                reserve_for_output=reserve_for_output,
            )
        )
        return blocking(found, self._portal.call)

    def search(self, query: str, limit: int = 10, **filters: Unpack[SearchFilters]) -> list[Hit]:
        """Give up to ``limit`` messages and summaries that answer ``query``, best first.

        The filters are those of SearchFilters: ``levels``, ``span``, ``since``, ``until``,
        ``threads``, ``roles``, ``tags``, ``entities`` and ``semantic_dedup``.
        """
        return self._portal.call(self._session.search(query, limit, **filters))

    def recall(
        self,
        query: str,
        max_tokens: int = 1_000,
        *,
        neighbours: int = 0,
        beside: AsyncContextSelection | ContextSelection | None = None,
        **filters: Unpack[RecallFilters],
    ) -> Evidence:
        """Give the messages that answer ``query`` best, verbatim, in ``max_tokens`` at most.

        Nothing is given that stands word for word in the context ``beside``. The filters are those
        of ``search``, without ``levels``.
        """
        work = self._session.recall(
            query, max_tokens, neighbours=neighbours, beside=beside, **filters
        )
        return self._portal.call(work)

    def fill_budget(
        self,
        hits: Iterable[Hit],
        max_tokens: int,
        *,
        neighbours: int = 1,
        beside: AsyncContextSelection | ContextSelection | None = None,
    ) -> Evidence:
        """Pack what hits rest on into ``max_tokens``, verbatim, the first hit first.

        Without what stands word for word in the context ``beside``.
        """
        work = self._session.fill_budget(hits, max_tokens, neighbours=neighbours, beside=beside)
        return self._portal.call(work)

    def embed(self) -> EmbeddingReport:
        """Make the vectors of messages and summaries that are missing; give what was done."""
        return self._portal.call(self._session.embed())

    def extract(
        self,
        options: ExtractionOptions | None = None,
        *,
        on_progress: Callable[[ExtractionProgress], object] | None = None,
        max_calls: int | None = None,
        max_tokens: int | None = None,
        deadline: float | None = None,
    ) -> ExtractionReport:
        """Make one TriVector of the session: a graph, what is open, where it is going.

        ``on_progress`` is called on the memory's own thread.
        """
        return self._portal.call(
            self._session.extract(
                options,
                on_progress=on_progress,
                max_calls=max_calls,
                max_tokens=max_tokens,
                deadline=deadline,
            )
        )

    def tri_vector(self) -> TriVector | None:
        """Give the newest result of ``extract``, or None where there is none."""
        return self._portal.call(self._session.tri_vector())

    def expand(
        self, node: Summary | ShownSummary | Hit | str, depth: int | None = 1
    ) -> tuple[Summary | StoredMessage, ...]:
        """Go ``depth`` levels down from a summary, a hit or an id; None goes to the messages.

        A message that was hit gives itself, whole.
        """
        return self._portal.call(self._session.expand(node, depth))

    def edit(self, index: int, content: Content, *, on_edit: OnEdit = "flag") -> EditReport:
        """Replace the content of a message; what it said before stays readable as a version."""
        return self._portal.call(self._session.edit(index, content, on_edit=on_edit))

    def versions(self, index: int) -> tuple[StoredMessage, ...]:
        """Give what a message was before its edits, oldest first; () where it was not edited."""
        return self._portal.call(self._session.versions(index))

    def erase(self, indices: Iterable[int], *, forks: Forks = "all") -> Receipt:
        """Erase messages, and everything that was made of them, for good; say what went."""
        return self._portal.call(self._session.erase(indices, forks=forks))

    def quarantine(self, indices: Iterable[int], *, forks: Forks = "all") -> Receipt:
        """Take messages out of everything that is made of them; they stay readable as they are."""
        return self._portal.call(self._session.quarantine(indices, forks=forks))

    def fork(self, new_id: str, *, at: int | None = None, title: str | None = None) -> Session:
        """Begin a session that shares this one's messages before ``at`` (None: all of them)."""
        inner = self._portal.call(self._session.fork(new_id, at=at, title=title))
        return Session(self._portal, inner)

    def recompress(self, level: int, span: tuple[int, int] | Span | None = None) -> tuple[str, ...]:
        """Ask for new texts of a level's summaries; give the ids of those that are marked."""
        return self._portal.call(self._session.recompress(level, span))

    def reconfigure(self, config: HierarchyConfig) -> None:
        """Seal and group what comes from now on under another configuration."""
        self._portal.call(self._session.reconfigure(config))

    def messages(self, start: int = 0, stop: int | None = None) -> list[StoredMessage]:
        """Give the messages from ``start`` up to and without ``stop``, verbatim."""
        return self._portal.call(self._session.messages(start, stop))

    def summaries(self, level: int | None = None) -> list[Summary]:
        """Give the summaries of a level, or of all levels, lowest first."""
        return self._portal.call(self._session.summaries(level))

    def forest(self) -> tuple[Tree, ...]:
        """Give the trees of summaries, oldest first."""
        return self._portal.call(self._session.forest())

    def status(self) -> SessionStatus:
        """Tell where the session stands."""
        return self._portal.call(self._session.status())

    def runs(self, *, limit: int = 100) -> list[RunRecord]:
        """List the journalled runs of this session, newest first."""
        return self._portal.call(self._session.runs(limit=limit))

    def metrics(self, prices: Prices | None = None) -> Metrics:
        """Measure the session: how much shorter it is, what that cost, what was kept."""
        return self._portal.call(self._session.metrics(prices))

    def feedback(
        self,
        target: Hit | Summary | ShownSummary | StoredMessage | str,
        *,
        score: float,
        note: str = "",
    ) -> None:
        """Say how good a summary is, from 0 to 1; the mean is in the metrics."""
        self._portal.call(self._session.feedback(target, score=score, note=note))

    def flush(self) -> None:
        """Seal each thread's open window at its last whole point."""
        self._portal.call(self._session.flush())

    def tick(self, now: datetime) -> None:
        """Apply the time rules as if a message arrived ``now`` (timezone-aware)."""
        self._portal.call(self._session.tick(now))

    def close(self) -> None:
        """Seal everything up to one root and archive the session."""
        self._portal.call(self._session.close())

    def reopen(self) -> None:
        """Make a closed session writable again."""
        self._portal.call(self._session.reopen())
