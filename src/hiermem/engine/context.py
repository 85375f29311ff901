"""Select the context of a session: read, let the core decide, remember what was shown.

``ContextWindowManager`` is the class that applications call directly, over any store. The one rule:
it holds no policy; which messages and summaries stand where is decided in ``hiermem.core.cut``.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from hiermem.config import HierarchyConfig
from hiermem.core import arguments, cut, layered
from hiermem.core.cut import Cut, Situation
from hiermem.core.measure import MESSAGE_OVERHEAD, canonical_json
from hiermem.core.render import RENDERER
from hiermem.core.selection import ByLevel, ContextBudget, ContextSelection, ShownSummary
from hiermem.core.text import check_name
from hiermem.core.view import Seen, View
from hiermem.engine.handle import Handle, config_from, state_from
from hiermem.engine.tree import expand
from hiermem.errors import BudgetTooSmallError, UsageError
from hiermem.protocols import Store, TokenCounter, ViewRecord
from hiermem.tokens import default_counter
from hiermem.types import Node, SessionRecord, StoredMessage, Summary

__all__ = ["SEEN", "ContextWindowManager", "Strategy"]

Strategy: TypeAlias = Literal["cut", "layered"]
#: What the name of a view ends with that holds no cut, but what the last selection rendered.
SEEN: Final = "/seen"


@dataclass(frozen=True, slots=True)
class _Request:
    """One context request, with its budget split."""

    budget: ContextBudget
    strategy: Strategy = "cut"
    view: str = "default"
    sticky: bool = True
    cache_cold: bool = False
    allow_omission: bool = False

    def overhead(self, counter: TokenCounter) -> tuple[int, int]:
        """Give the tokens of the system prompt and of the tool schemas, as a request bears them."""
        system = self.budget.system
        system_tokens = counter.count(system) + MESSAGE_OVERHEAD if system is not None else 0
        tools = self.budget.tools
        tool_tokens = counter.count(canonical_json(list(tools))) if tools else 0
        return system_tokens, tool_tokens


class ContextWindowManager:
    """Selects contexts over any store, one tenant at a time. Asynchronous.

    ``config`` is only what a session without one would get; a session's stored one is used.
    """

    def __init__(
        self,
        store: Store,
        *,
        tenant: str = "default",
        config: HierarchyConfig | None = None,
        token_counter: TokenCounter | None = None,
    ) -> None:
        self._handle = Handle(
            store=arguments.store_of(store).tenant(check_name(tenant, what="tenant")),
            counter=arguments.counter_of(token_counter, default_counter),
            config=arguments.optional(config, "config", HierarchyConfig, HierarchyConfig.by_tokens),
            configured=config is not None,
        )

    @classmethod
    def over(cls, handle: Handle) -> ContextWindowManager:
        """Make a manager that shares a memory's handle."""
        manager = cls.__new__(cls)
        manager._handle = handle  # noqa: SLF001 - a constructor of this very class
        return manager

    async def select_optimal_context(
        self,
        session_id: str,
        budget: ContextBudget | None = None,
        *,
        strategy: Strategy = "cut",
        view: str = "default",
        sticky: bool = True,
        cache_cold: bool = False,
        allow_omission: bool = False,
    ) -> ContextSelection:
        """Give the best context of the session that fits the budget.

        ``view`` names a sticky cut of its own: two agents with different needs use two names.
        ``cache_cold`` says that the provider's cache has expired, so that a fresh plan costs
        nothing. ``allow_omission`` lists in ``omitted`` what cannot fit instead of raising.

        Raises BudgetTooSmallError, NotFoundError, UsageError.
        """
        arguments.one_of(strategy, "strategy", ("cut", "layered"))
        budget = arguments.optional(budget, "budget", ContextBudget, ContextBudget)
        request = _Request(
            replace(
                budget,
                system=arguments.system_prompt(budget.system),
                tools=arguments.tool_schemas(budget.tools),
            ),
            strategy,
            check_name(view, what="view"),
            arguments.switch(sticky, "sticky"),
            arguments.switch(cache_cold, "cache_cold"),
            arguments.switch(allow_omission, "allow_omission"),
        )
        return await _select(self._handle, check_name(session_id, what="session id"), request)

    async def expand(
        self,
        node: Summary | ShownSummary | str,
        depth: int | None = 1,
        *,
        session_id: str | None = None,
    ) -> tuple[Summary | StoredMessage, ...]:
        """Give what a summary was made from, ``depth`` levels down; None: the messages.

        A Summary knows its session; an id, or what a selection shows, needs ``session_id``.

        Raises UsageError where the session is not known or is not the summary's, NotFoundError.
        """
        own = node.session_id if isinstance(node, Summary) else None
        name = own if session_id is None else check_name(session_id, what="session id")
        if name is None:
            raise UsageError("pass session_id=..., or a Summary, which knows its session")
        if own not in (None, name):
            raise UsageError("session_id is not the session of the summary given")
        return await expand(self._handle, name, node, depth)


async def _select(handle: Handle, session_id: str, request: _Request) -> ContextSelection:
    record = await handle.record(session_id)
    state = state_from(record.state)
    key = await handle.key()
    system_tokens, tool_tokens = request.overhead(handle.counter)
    overhead = system_tokens + tool_tokens + request.budget.reserve_for_output
    spendable = request.budget.max_tokens - overhead
    if spendable < 0:
        raise BudgetTooSmallError(
            budget=request.budget.max_tokens,
            minimum=overhead,
            why="the system prompt, the tools and the output reserve alone exceed it",
        )
    provisional: tuple[Node, ...] = ()
    if config_from(record.config).open_groups == "grow":
        found = await handle.store.provisional(session_id)
        provisional = tuple(node for node in found if node.level > 1 and node.revision)
    situation = Situation(
        state=state,
        budget=spendable,
        count=handle.counter.count,
        key=key,
        policy=handle.context_policy,
        overhead=overhead,
        reserve=_reserve(request.budget, spendable),
        provisional=provisional,
        view="" if request.view == "default" else request.view,
        sticky=request.sticky,
        cache_cold=request.cache_cold,
        allow_omission=request.allow_omission,
    )
    if request.strategy == "layered":
        decided = await handle.answer(session_id, layered.select(situation))
        return _selection(record, request, decided, overhead, tool_tokens, shared=0)
    name = f"{request.view}/{spendable}/{situation.reserve}/{RENDERER}"
    before, seen = await _recall_view(handle, session_id, name) if request.sticky else (None, None)
    decided = await handle.answer(session_id, cut.select(situation, before))
    now_seen = _seen(decided, None)
    shared = _shared(decided, seen)
    if request.sticky and not decided.omitted:
        # What was taken back since the record was read must not come in again with a view.
        if decided.view != before:
            await handle.store.put_view(
                ViewRecord(session_id, name, decided.view.to_json()), epoch=record.epoch
            )
        if now_seen != seen:
            counted = now_seen.after(seen, rendered=decided.tokens, shared=shared)
            await handle.store.put_view(
                ViewRecord(session_id, name + SEEN, counted.to_json()), epoch=record.epoch
            )
    return _selection(record, request, decided, overhead, tool_tokens, shared=shared)


def _reserve(budget: ContextBudget, spendable: int) -> int | None:
    if budget.reserve_for_messages is None:
        return None
    return min(budget.reserve_for_messages, spendable)


async def _recall_view(
    handle: Handle, session_id: str, name: str
) -> tuple[View | None, Seen | None]:
    """Read what was shown before; an unreadable state costs a cache miss, nothing else."""
    view = await handle.store.view(session_id, name)
    seen = await handle.store.view(session_id, name + SEEN)
    before = View.from_json(view.state) if view else None
    return before, Seen.from_json(seen.state) if seen and before else None


def _seen(decided: Cut, count: int | None) -> Seen:
    """Describe what a cut rendered, its first ``count`` verbatim blocks or all of them."""
    records = tuple((b.name, b.tokens) for b in decided.blocks if b.kind in ("summary", "view"))
    raw = [block for block in decided.blocks if block.kind in ("message", "quote")][:count]
    digest = hashlib.sha256()
    for block in raw:
        stored = block.message
        content = block.text or (stored.hash if stored else "")
        digest.update(f"{block.name}\0{content}\0".encode())
    return Seen(records, len(raw), sum(block.tokens for block in raw), digest.hexdigest()[:32])


def _shared(decided: Cut, seen: Seen | None) -> int:
    """Count the tokens at the front of this selection that stood there in the previous one."""
    if seen is None:
        return 0
    now = _seen(decided, seen.count)
    shared = 0
    for ours, theirs in zip(now.blocks, seen.blocks, strict=False):
        if ours != theirs:
            return shared
        shared += ours[1]
    if len(now.blocks) == len(seen.blocks) and now.digest == seen.digest:
        shared += seen.tokens
    return shared


def _selection(
    record: SessionRecord,
    request: _Request,
    decided: Cut,
    overhead: int,
    tool_tokens: int,
    *,
    shared: int,
) -> ContextSelection:
    total = record.messages
    left_out = _left_out(decided)
    return ContextSelection(
        session_id=record.id,
        max_tokens=request.budget.max_tokens,
        total_tokens=decided.tokens + overhead - request.budget.reserve_for_output,
        messages=total,
        coverage=1.0 if not left_out else max(0.0, 1 - left_out / max(1, total)),
        blocks=decided.blocks,
        omitted=decided.omitted,
        trimmed=tuple(node for piece in decided.view.pieces for node in piece.trimmed),
        recent_messages=tuple(item.message for item in decided.shown),
        summaries=_by_level(decided),
        shared_prefix_tokens=shared,
        system=request.budget.system,
        tool_tokens=tool_tokens,
    )


def _left_out(decided: Cut) -> int:
    """Count the messages that are not represented in full, by the hulls of what is omitted."""
    raw = {item.message.index for item in decided.shown if not item.partial}
    found = 0
    reached = 0
    for item in sorted(decided.omitted, key=lambda item: item.span.start):
        begin = max(reached, item.span.start)
        found += sum(index not in raw for index in range(begin, item.span.stop))
        reached = max(reached, item.span.stop)
    return found


def _by_level(decided: Cut) -> ByLevel:
    found: dict[int, list[ShownSummary]] = {}
    for piece in decided.view.pieces:
        for item in piece.covers:
            shown = ShownSummary(
                id=item.id,
                level=item.level,
                span=item.span,
                messages=item.messages,
                trimmed=item.id in piece.trimmed,
                block=piece.name,
            )
            found.setdefault(item.level, []).append(shown)
    return ByLevel({level: tuple(items) for level, items in sorted(found.items())})
