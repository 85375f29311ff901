"""One conversation, asynchronous: what an application does with a session.

A call checks its arguments, hands them to the engine and returns the engine's answer. Sessions are
made by ``hiermem.api.memory``; ``hiermem.api.sync`` derives the blocking ``Session`` from this one.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Literal, Unpack, cast, overload

from hiermem import arguments, types
from hiermem.api.resources import Resources
from hiermem.calls.limits import Prices
from hiermem.changes.receipts import EditReport, ForkHandling, Receipt
from hiermem.config import ExtractionOptions, HierarchyConfig, Limits, UpdateStrategy, replaced
from hiermem.context import read, select, selection
from hiermem.context.profile import ContextProfile
from hiermem.errors import UsageError
from hiermem.handle import Handle
from hiermem.log import append as ingest
from hiermem.search.results import Evidence, Hit, RecallFilters, SearchFilters
from hiermem.text.policy import MAX_NAME, check, check_name
from hiermem.types import (
    Content,
    Message,
    Span,
    StoredMessage,
    Summary,
)
from hiermem.types.brief import Brief


class AsyncSession(Brief):
    """One conversation: append messages, summarise them, read contexts and search.

    A memory makes sessions; see ``AsyncMemory.session``. Messages are numbered from 0 in the order
    of their append, and that number is a message's index for good. Summaries of messages are of
    level 1, summaries of summaries of level 2 and above.

    A session without messages is read as an empty one: an empty context, no hits, an empty status.
    Calls that change something, summarise, embed or extract raise NotFoundError until the first
    append. Every call raises ClosedError once the memory is closed.
    """

    _brief = "id"

    def __init__(self, resources: Resources, about: ingest.About) -> None:
        self._resources = resources
        self._about = about

    @property
    def id(self) -> str:
        """The session's id."""
        return self._about.id

    @property
    def _handle(self) -> Handle:
        return self._resources.opened()

    # -- Writing

    async def append(self, *messages: ingest.Messages) -> list[int]:
        """Append messages, or iterables of messages, and return their indices in order.

        A message is a Message or a dict of OpenAI's chat or Responses shape or of Anthropic's.
        Either all messages are written or none, and they are durable when the call returns. A
        message whose ``key`` was appended before with the same content is not written again; its
        first index is returned.

        Raises InvalidMessageError, ClosedError, and ConflictError where a key was used for other
        content or the session was counted by another token counter. Nothing was written then.
        """
        await self._check_space()
        return await ingest.append(self._handle, self._about, messages)

    async def sync(
        self, messages: ingest.Messages, *, on_rewrite: ingest.OnRewrite = "report"
    ) -> types.SyncReport:
        """Append what is new of a whole history, and return what was appended.

        For clients that hand over all of a conversation each time, from its beginning or only its
        newest part. Messages are the same if role, content, name and tool calls are. System
        messages that lead the history are not compared and not appended, and neither is memory that
        hiermem rendered. A message that was edited, erased or quarantined here counts as the same
        as the client's.

        Where the history has another message than the session, it was rewritten. With
        ``on_rewrite="report"`` nothing is written then, and ``rewritten_at`` is the index of that
        message. With "fork" the session is forked before it, and the fork takes the rest; the same
        call with more messages goes on in the same fork. With "error" it raises
        ConflictError.

        Also raises what ``append`` raises, and BusyError where others appended meanwhile
        again and again.
        """
        await self._check_space()
        return await ingest.sync(self._handle, self._about, messages, on_rewrite=on_rewrite)

    async def delete(self, *, forks: ForkHandling = "all") -> Receipt:
        """Erase the session with everything that is kept of it; return what was removed.

        With ``forks="all"``, the sessions that were forked from it lose its messages too. With
        "keep" they keep them, and the receipt names those sessions. A later append begins a new
        session.

        Raises NotFoundError.
        """
        from hiermem.changes import change

        return await change.erase_session(self._handle, self.id, forks=forks)

    def _append_here(self, given: Sequence[Message]) -> list[int] | None:
        """Append on the calling thread, which blocks; None where that is not possible now."""
        return ingest.append_here(self._handle, self._about, given)

    async def flush(self) -> None:
        """Seal each thread's open window at its last whole point: where no tool call is open."""
        await ingest.happen(self._handle, self.id, "flush")

    async def tick(self, now: datetime) -> None:
        """Apply the time rules as if a message had arrived at ``now`` (timezone-aware)."""
        at = arguments.moment(now, "now").isoformat()
        await ingest.happen(self._handle, self.id, "tick", at)

    async def close(self) -> None:
        """Seal all messages, group the summaries up to one root, and refuse further appends."""
        await ingest.happen(self._handle, self.id, "close")

    async def reopen(self) -> None:
        """Accept appends again after ``close``."""
        await ingest.happen(self._handle, self.id, "reopen")

    async def join(self, space: str) -> None:
        """Make the session a member of a space, which its conversations share.

        A session is a member of at most one space. Its forks inherit the membership.

        Raises NotFoundError if the session or the space does not exist, UsageError if the session
        is a member of another space.
        """
        from hiermem.changes import change

        await change.join(self._handle, self.id, check_name(space, what="space"))
        self._about.space = space

    async def leave(self) -> None:
        """Take the session out of its space. Nothing happens if it is in none.

        What the space shares no longer holds anything that stems from this session alone.

        Raises NotFoundError if the session does not exist.
        """
        from hiermem.changes import change

        await change.leave(self._handle, self.id)
        self._about.space = None

    async def _check_space(self) -> None:
        """Refuse a space that does not exist, or that is not the session's.

        It is read once. Raises NotFoundError and UsageError.
        """
        about = self._about
        if about.space is None or about.space_known:
            return
        from hiermem.bank.space import ensure_exists

        record = await self._handle.store.session(self.id)
        if record is None:
            await ensure_exists(self._handle, about.space)
        else:
            about.check_space(record)
        about.space_known = True

    async def get_metadata(self) -> dict[str, str]:
        """Return the session's metadata: labels of the application that it can be listed by."""
        record = await self._handle.store.session(self.id)
        return dict(self._about.metadata if record is None else record.metadata)

    async def set_metadata(self, metadata: Mapping[str, str]) -> None:
        """Replace the session's metadata by a flat mapping of short texts.

        At most 64 pairs are kept. A name has 1 to 512 characters, a value at most 512.
        """
        from hiermem.changes import change

        given = arguments.metadata(metadata)
        await change.describe(self._handle, self.id, lambda one: replace(one, metadata=given))

    async def set_title(self, title: str | None) -> None:
        """Replace the session's title, of at most 512 characters; None removes it.

        Summaries that are made stay as they are; the model sees the title from now on.
        """
        from hiermem.changes import change

        if title is not None:
            title = check(title, what="title", cap=MAX_NAME, on_bad=self._about.on_bad_text)
        await change.describe(self._handle, self.id, lambda one: replace(one, title=title))
        self._about = replace(self._about, title=title)

    # -- Summarising

    @overload
    async def update(
        self,
        level: int | None = None,
        *,
        strategy: UpdateStrategy = "incremental",
        wait: bool = True,
        on_progress: Callable[[types.UpdateProgress], object] | None = None,
        limits: Limits | None = None,
        concurrency: int | None = None,
        batch_delay: float | None = None,
        config: HierarchyConfig | None = None,
        dry_run: Literal[False] = False,
    ) -> types.UpdateReport: ...

    @overload
    async def update(
        self,
        level: int | None = None,
        *,
        strategy: UpdateStrategy = "incremental",
        wait: bool = True,
        on_progress: Callable[[types.UpdateProgress], object] | None = None,
        limits: Limits | None = None,
        concurrency: int | None = None,
        batch_delay: float | None = None,
        config: HierarchyConfig | None = None,
        dry_run: Literal[True],
    ) -> types.UpdatePlan: ...

    async def update(
        self,
        level: int | None = None,
        *,
        strategy: UpdateStrategy = "incremental",
        wait: bool = True,
        on_progress: Callable[[types.UpdateProgress], object] | None = None,
        limits: Limits | None = None,
        concurrency: int | None = None,
        batch_delay: float | None = None,
        config: HierarchyConfig | None = None,
        dry_run: bool = False,
    ) -> types.UpdateReport | types.UpdatePlan:
        """Make the summaries that are missing or out of date, and return what was done.

        Level 1 is made first. ``level`` limits the update to that level and those below.
        ``strategy="full"`` re-packs the session: it builds a second tree under the memory's
        configuration (the session's own where the memory was given none) and replaces the present
        tree once the new one is complete. The next full update resumes a re-pack that ended early.
        With ``config`` it is built under that configuration, which is then the session's.

        With ``wait=False`` the call returns when level 1 is made, or at once and with an empty
        report if the model is remote; the rest follows in the background. ``concurrency`` and
        ``batch_delay`` (seconds) replace those of the memory's UpdatePolicy in this update. With
        ``dry_run`` the call returns the plan of an update: it asks no model and writes nothing.

        ``on_progress`` is called after every commit, on the event loop's thread. It must return
        soon. In the blocking API that is a thread of the memory's own, from which any call of the
        memory raises UsageError.
        """
        from hiermem.search import ahead
        from hiermem.summaries import update as updating

        if level is not None:
            arguments.whole(level, "level", least=1)
        limits = arguments.run(limits, on_progress=on_progress)
        arguments.one_of(strategy, "strategy", ("incremental", "full"))
        arguments.switch(wait, "wait")
        arguments.switch(dry_run, "dry_run")
        if strategy == "full" and level is not None:
            raise UsageError("level requires strategy='incremental'")
        if strategy == "full" and not (wait or dry_run):
            raise UsageError("strategy='full' requires wait=True; use a task to continue meanwhile")
        if config is not None:
            arguments.optional(config, "config", HierarchyConfig)
            if strategy != "full":
                raise UsageError("config requires strategy='full'; reconfigure() changes windows")
        handle, resources = self._handle, self._resources
        policy = replaced(handle.update_policy, concurrency=concurrency, batch_delay=batch_delay)
        run = partial(
            updating.update, handle, self.id, strategy=strategy, config=config, policy=policy
        )
        if dry_run:
            return await run(resources.shared, level=level, dry_run=True)

        async def made(level: int | None, limits: Limits) -> types.UpdateReport:
            updated = run(resources.shared, level=level, on_progress=on_progress, limits=limits)
            report = cast("Awaitable[types.UpdateReport]", updated)
            return await ahead.with_index(handle, self.id, report, within=limits.deadline)

        async def made_and_embedded(limits: Limits) -> None:
            await made(level, limits)
            resources.embed_behind(self.id)

        if resources.shared.llm.remote and not wait:
            resources.behind(made_and_embedded(limits))
            from hiermem.summaries.reports import UpdateReport

            return UpdateReport()
        began = time.monotonic()
        report = await made(level if wait else 1, limits)
        if wait:
            resources.embed_behind(self.id)
        elif (level is None or level > 1) and report.stopped is None:
            # Both parts together are one update: the second gets what the first left.
            seconds = time.monotonic() - began
            left = limits.after(calls=report.calls, tokens=report.tokens, seconds=seconds)
            resources.opened()  # it may have been closed meanwhile
            resources.behind(made_and_embedded(left))
        return report

    async def recompress(
        self, level: int, span: tuple[int, int] | Span | None = None
    ) -> tuple[str, ...]:
        """Mark summaries of a level for a new text, and return their ids.

        ``span`` is a range of message indices, (start, stop) or a Span, and marks the summaries
        that cover any message of it; None marks the whole level. The next update makes the new
        texts; until then the present ones serve.
        """
        from hiermem.summaries import update as updating

        arguments.whole(level, "level", least=1)
        given = None if span is None else arguments.stretch(span, "span")
        return await updating.recompress(self._handle, self.id, level, given)

    async def reconfigure(self, config: HierarchyConfig) -> None:
        """Seal and group messages under another configuration from now on.

        Sealed windows stay unchanged; ``update(strategy="full")`` re-packs them under the new
        configuration, also where the memory was opened with another one. The messages of open
        windows are sealed by the new rules at once, as if each arrived now with its own time. A
        full re-pack under a different configuration that has not finished starts again.

        Raises ClosedError.
        """
        from hiermem.summaries import update as updating

        if not isinstance(config, HierarchyConfig):
            raise UsageError(f"config is {type(config).__name__}; it must be a HierarchyConfig")
        await updating.reconfigure(self._handle, self.id, config)

    async def feedback(
        self,
        target: Hit | Summary | selection.ShownSummary | StoredMessage | str,
        *,
        score: float,
        note: str = "",
    ) -> None:
        """Record how good a summary is, from 0 to 1; ``metrics`` reports the mean.

        ``target`` is a hit, a summary, a message, or the id of one.

        Raises NotFoundError where the session has no such summary or message, and for a summary of
        a tree that a re-pack has replaced, because its id means another summary now.
        """
        from hiermem.upkeep import read_metrics as measuring

        await measuring.give_feedback(self._handle, self.id, target, score=score, note=note)

    # -- Contexts and search

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
        strategy: select.Strategy = "cut",
        sticky: bool = True,
        cache_cold: bool = False,
        allow_omission: bool = False,
        reserve_for_messages: int | None = None,
        reserve_for_output: int = 0,
    ) -> selection.ContextSelection:
        """Return the best context within ``max_tokens`` that covers every message exactly once.

        Newer messages stand verbatim, older ones as summaries. With a ``query``, the messages that
        answer it stand before the newest turn, verbatim, in at most ``recall_tokens`` (by default
        0.4 of the budget); a message that already stands verbatim is not repeated, and the part
        before does not depend on the query. A history that fits is shown whole.

        ``system`` and ``tools`` (JSON schemas) are counted against the budget, and so are
        ``reserve_for_output`` tokens for the model's answer. ``profile`` states what an agent
        prefers to see. ``view`` names a cut that is kept between calls, one for each agent with
        needs of its own. ``reserve_for_messages`` sizes the verbatim part; by default the context
        policy does. The remaining parameters are those of
        ``ContextWindowManager.select_optimal_context``.

        Raises BudgetTooSmallError where the budget cannot hold the context, unless
        ``allow_omission`` is set: then ``omitted`` lists what was left out.
        """
        await self._check_space()
        budget = selection.ContextBudget(
            max_tokens=max_tokens,
            reserve_for_messages=reserve_for_messages,
            reserve_for_output=reserve_for_output,
            system=system,
            tools=tools,
        )
        request = select.Request(
            budget,
            strategy=strategy,
            view=view,
            sticky=sticky,
            cache_cold=cache_cold,
            allow_omission=allow_omission,
            query=query,
            recall_tokens=recall_tokens,
            profile=profile,
            space=self._about.space,
        )
        return await select.context(self._handle, self.id, request)

    async def search(
        self, query: str, limit: int = 10, **filters: Unpack[SearchFilters]
    ) -> list[Hit]:
        """Return up to ``limit`` messages and summaries that match ``query``, best first.

        Every message can be found from its append on, summarised or not. ``query`` is read as
        words: it has no operators, and no text is refused. A hit in a long message is the passage
        that matches best, with its offsets.

        A hit must meet every filter given, and within one filter any of its values: ``levels`` (0
        for messages), ``span`` (message indices, start and stop), ``since`` (included) and
        ``until`` (excluded), ``threads``, ``roles`` (of messages only), ``tags`` and ``entities``
        (a message has those of its window's summary). ``semantic_dedup`` leaves out messages that
        repeat a better hit. See SearchFilters.
        """
        from hiermem.search import search
        from hiermem.search.select import read_filters

        question = search.Question(self.id, query, read_filters(filters))
        return await search.search(self._handle, question, limit)

    async def recall(
        self,
        query: str,
        max_tokens: int = 1_000,
        *,
        neighbours: int = 0,
        beside: selection.ContextSelection | None = None,
        **filters: Unpack[RecallFilters],
    ) -> Evidence:
        """Return the messages that answer ``query`` best, verbatim, in at most ``max_tokens``.

        The messages stand in the order of the conversation; of long ones only the passages that
        matter. The budget covers everything in ``text``: contents, speakers and dates.
        ``neighbours`` adds that many passages before and after each hit. Messages that the context
        ``beside`` shows verbatim are left out. The filters are those of ``search`` without
        ``levels``.
        """
        from hiermem.search import search
        from hiermem.search.select import read_filters

        question = search.Question(self.id, query, read_filters(filters, accepted=RecallFilters))
        shown = self._shown(beside)
        return await search.recall(
            self._handle, question, max_tokens, neighbours=neighbours, shown=shown
        )

    def _shown(self, beside: Any) -> tuple[Span, ...]:
        """Return what a context shows verbatim. Raises UsageError for another session's."""
        if beside is None:
            return ()
        if not isinstance(beside, selection.ContextSelection):
            raise UsageError(
                f"beside is {type(beside).__name__}; it must be what context() gives, or None"
            )
        if beside.session_id != self.id:
            raise UsageError("beside is a context of another session")
        return beside.verbatim

    async def embed(self) -> types.EmbeddingReport:
        """Make the missing vectors of messages and summaries, and return what was done.

        ``update`` does so in the background. A pass that was cut off is resumed by the next.

        Raises UsageError where the memory has no embedder, ConflictError where the session
        has vectors of another embedder, ModelError, and what the embedder raises.
        """
        from hiermem.search import embed as embedding

        return await embedding.embed(self._handle, self.id)

    async def expand(
        self, node: Summary | selection.ShownSummary | Hit | str, depth: int | None = 1
    ) -> tuple[Summary | StoredMessage, ...]:
        """Return what a summary was made from, ``depth`` levels down; None means the messages.

        ``node`` is a summary, a hit or an id. For a hit that is a message, the result is that
        message, whole.

        Raises NotFoundError for an unknown id.
        """
        return await read.expand(self._handle, self.id, node, depth)

    # -- Extraction

    async def extract(
        self,
        options: ExtractionOptions | None = None,
        *,
        on_progress: Callable[[types.ExtractionProgress], object] | None = None,
        limits: Limits | None = None,
    ) -> types.ExtractionReport:
        """Extract one TriVector from the session: its graph, its open points and its direction.

        See ``SemanticGraphExtractor.execute_tri_vector_extraction`` for the parameters and errors.
        In the blocking API, ``on_progress`` is called on a thread of the memory's own, from which
        any call of the memory raises UsageError.
        """
        from hiermem.extraction.extract import extract

        return await extract(
            self._handle,
            self.id,
            llm=self._resources.llm,
            options=arguments.optional(options, "options", ExtractionOptions),
            prompts=self._resources.prompts,
            on_progress=on_progress,
            limits=arguments.run(limits, on_progress=on_progress),
        )

    async def tri_vector(self) -> types.TriVector | None:
        """Return the newest result of ``extract``, or None where there is none."""
        from hiermem.extraction import tenant_graph as graph

        return await graph.tri_vector(self._handle, self.id)

    # -- Editing, erasing, forking

    async def edit(self, index: int, content: Content) -> EditReport:
        """Replace the content of a message; its earlier content stays readable as a version.

        Windows keep their bounds. The summaries above the message are marked as dirty and go on
        serving. With ``UpdatePolicy(regenerate_on_edit=True)`` the next update makes them again,
        and the levels above them as far as a text below came out different.

        Raises NotFoundError, ClosedError, ConflictError where the message was erased
        or quarantined, and InvalidMessageError. Nothing was written then.
        """
        from hiermem.changes import change

        return await change.edit(
            self._handle,
            self.id,
            index,
            content,
            on_bad_text=self._about.on_bad_text,
        )

    async def versions(self, index: int) -> tuple[StoredMessage, ...]:
        """Return the earlier versions of a message, oldest first; () where it was never edited.

        Raises NotFoundError where there is no such message.
        """
        return await read.versions(self._handle, self.id, index)

    async def pin(self, indices: int | Iterable[int]) -> None:
        """Keep messages in sight of every context, verbatim or by an excerpt, while they fit.

        Raises NotFoundError for an unknown index, and ConflictError.
        """
        from hiermem.changes import change

        await change.set_pin(self._handle, self.id, indices, pinned=True)

    async def unpin(self, indices: int | Iterable[int]) -> None:
        """Take the pins off messages; a standing wish in one is withdrawn, also in later forks.

        Raises NotFoundError for a message that is not pinned, and ConflictError.
        """
        from hiermem.changes import change

        await change.set_pin(self._handle, self.id, indices, pinned=False)

    async def pins(self) -> tuple[types.Pin, ...]:
        """Return the pinned messages, the newest first; at most the newest 64 of either reason.

        A message that a user begins with a standing wish ("always …", "from now on …", "do not …",
        "I prefer …") has the reason "wish", unless several people speak in the session. What an
        application pinned, and a system message, has the reason "pinned". Contexts show pins
        within ``ContextPolicy.pins`` of the budget.
        """
        return await read.pins(self._handle, self.id)

    async def erase(self, indices: int | Iterable[int], *, forks: ForkHandling = "all") -> Receipt:
        """Erase messages and everything that was made from them; return what was removed.

        An empty message stays in the place of each. With ``forks="all"`` the sessions that share
        the messages lose them too. With "keep" those sessions keep them, and the receipt names the
        sessions.

        Raises NotFoundError where there is no such message. Nothing was erased then.
        """
        from hiermem.changes import change

        return await change.erase(self._handle, self.id, indices, forks=forks)

    async def quarantine(
        self, indices: int | Iterable[int], *, forks: ForkHandling = "all"
    ) -> Receipt:
        """Take messages out of everything made from them; the messages stay readable.

        Use it against input that should never have been believed. No context shows the messages,
        and summaries are made again without them. ``forks`` is as for ``erase``.

        Raises NotFoundError where there is no such message. Nothing was written then.
        """
        from hiermem.changes import change

        return await change.erase(self._handle, self.id, indices, forks=forks, kind="quarantine")

    async def fork(
        self, new_id: str, *, at: int | None = None, title: str | None = None
    ) -> AsyncSession:
        """Return a new session that shares this one's messages before ``at`` (None: all of them).

        Summaries of windows that end before ``at`` are shared too, without a model call.

        Raises ConflictError, and NotFoundError where ``at`` lies beyond the last message.
        """
        if at is not None:
            arguments.whole(at, "at")
        about = self._about.of_fork(check_name(new_id, what="new_id"))
        if title is not None:
            title = check(title, what="title", cap=MAX_NAME)
        about = replace(about, title=title, participants=())
        await ingest.fork(self._handle, self.id, about.id, at=at, title=about.title)
        return AsyncSession(self._resources, about)

    # -- Reading

    async def count(self) -> int:
        """Return the number of messages, erased ones included; the next index."""
        return (await self._handle.record_or_new(self.id)).messages

    async def summary(self) -> str:
        """Return the texts of the roots, oldest first: the shortest account of the session.

        Where a root has no text yet, the texts below it stand in its place. Messages that no
        summary covers yet are not in it.
        """
        return await read.summary(self._handle, self.id)

    async def messages(self, start: int = 0, stop: int | None = None) -> list[StoredMessage]:
        """Return the messages from index ``start`` up to but excluding ``stop``, verbatim."""
        return await read.messages(self._handle, self.id, start, stop)

    async def summaries(self, level: int | None = None) -> list[Summary]:
        """Return the summaries of a level, in order; None returns all levels, lowest first."""
        return await read.summaries(self._handle, self.id, level)

    async def forest(self) -> tuple[read.Tree, ...]:
        """Return the trees of summaries, oldest first."""
        return await read.forest(self._handle, self.id)

    async def status(self) -> read.SessionStatus:
        """Return the session's state: its counts, open windows, unfinished work and last error."""
        return await read.status(self._handle, self.id)

    async def runs(self, *, limit: int = 100) -> list[types.RunRecord]:
        """Return the journalled runs of this session, newest first."""
        return await read.runs(self._handle, limit, subject=self.id)

    async def metrics(self, prices: Prices | None = None) -> types.Metrics:
        """Return how far the session is compressed, what that cost and what was kept.

        With ``prices`` the result also states savings and costs in money.
        """
        from hiermem.upkeep import read_metrics as measuring

        return await measuring.metrics(self._handle, self.id, prices)

    async def to_html(self, *, text: bool = True, query: str | None = None) -> str:
        """Return a page that shows the session in a browser: one HTML text that loads nothing.

        It has the messages, the summaries above them, contexts of several budgets as they would be
        sent (for ``query``, if one is given), pins, costs and errors, and the notes of spaces that
        came from the session alone; nothing of another session's. With ``text=False`` it has
        structure, times and sizes only: lengths stand for texts, and numbers for names. Nothing is
        written.
        """
        from hiermem.view.read import html_page

        arguments.switch(text, "text")
        return await html_page(self._handle, self.id, text=text, query=query)
