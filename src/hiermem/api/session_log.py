"""What was said in one conversation, and how it is changed, asynchronous.

Nothing is decided here. A call checks its arguments, hands them to the engine and returns what the
engine answers. Summaries and contexts are asked for in ``hiermem.api.session``.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from hiermem.api.resources import Parts
from hiermem.config import HierarchyConfig
from hiermem.core import arguments
from hiermem.core.context.selection import ShownSummary
from hiermem.core.log.edit import OnEdit
from hiermem.core.log.erase import ForkHandling
from hiermem.core.log.receipts import EditReport, Receipt
from hiermem.core.metrics import Metrics
from hiermem.core.search.hits import Hit
from hiermem.engine.handle import Handle
from hiermem.engine.log import append as ingest
from hiermem.engine.log import change, feedback, read
from hiermem.engine.log import runs as journal
from hiermem.engine.log.append import About, Messages
from hiermem.engine.log.read import SessionStatus, Tree
from hiermem.engine.metrics import metrics as measure
from hiermem.engine.summaries import recompress as remake
from hiermem.errors import UsageError
from hiermem.types import Content, Span, StoredMessage, Summary
from hiermem.types.prices import Prices
from hiermem.types.transaction import RunRecord


class AsyncLog:
    """The log of one conversation with what stands over it: read, changed, told about."""

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
        return await read.versions(self._handle, self._about.id, index)

    async def erase(self, indices: Iterable[int], *, forks: ForkHandling = "all") -> Receipt:
        """Erase messages, and everything that was made of them, for good; say what went.

        An empty message stays in each one's place. With ``forks="all"`` the sessions that share
        them lose them too; "keep" leaves those alone, and the receipt names them.

        Raises NotFoundError where there is no such message; nothing was erased then.
        """
        return await change.erase(self._handle, self._about.id, indices, forks=forks)

    async def quarantine(self, indices: Iterable[int], *, forks: ForkHandling = "all") -> Receipt:
        """Take messages out of everything that is made of them; they stay readable as they are.

        Against input that should never have been believed. Raises NotFoundError.
        """
        return await change.quarantine(self._handle, self._about.id, indices, forks=forks)

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

        What is sealed stays as it is; ``update(strategy="full")`` re-packs that too. A full re-pack
        that is under way under another configuration does not come to its end: it begins anew.

        Raises SessionClosedError.
        """
        if not isinstance(config, HierarchyConfig):
            raise UsageError(f"config is {type(config).__name__}; it must be a HierarchyConfig")
        await remake.reconfigure(self._handle, self._about.id, config)

    async def messages(self, start: int = 0, stop: int | None = None) -> list[StoredMessage]:
        """Give the messages from ``start`` up to and without ``stop``, verbatim."""
        return await read.messages(self._handle, self._about.id, start, stop)

    async def summaries(self, level: int | None = None) -> list[Summary]:
        """Give the summaries of a level, or of all levels, lowest first."""
        return await read.summaries(self._handle, self._about.id, level)

    async def forest(self) -> tuple[Tree, ...]:
        """Give the trees of summaries, oldest first."""
        return await read.forest(self._handle, self._about.id)

    async def status(self) -> SessionStatus:
        """Tell where the session stands."""
        return await read.status(self._handle, self._about.id)

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
