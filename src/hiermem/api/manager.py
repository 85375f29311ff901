"""The context window manager: the interface that applications call directly, over any store.

The manager makes no decisions. Each call hands its checked arguments to ``select`` or ``semantic``.
"""

from __future__ import annotations

from typing import Unpack

from hiermem import arguments, protocols
from hiermem.config import HierarchyConfig, SearchPolicy
from hiermem.context import read, select, selection
from hiermem.context.profile import ContextProfile
from hiermem.errors import UsageError
from hiermem.handle import Handle
from hiermem.records.store import StoreLike
from hiermem.search.results import Hit, SearchFilters
from hiermem.text.policy import check_name
from hiermem.types import StoredMessage, Summary


class ContextWindowManager:
    """Selects contexts over any store, one tenant at a time. Asynchronous.

    ``memory.manager`` is one over the store of a memory; that of a ``Memory`` blocks. ``config``
    applies only to a session without a stored config; a stored config has priority.
    """

    def __init__(
        self,
        store: StoreLike,
        *,
        tenant: str = "default",
        config: HierarchyConfig | None = None,
        token_counter: protocols.TokenCounter | str | None = None,
        embedder: protocols.Embedder | None = None,
        search_policy: SearchPolicy | None = None,
    ) -> None:
        from hiermem.api.defaults import handle_over

        self._handle = handle_over(
            store,
            tenant,
            token_counter=token_counter,
            config=config,
            embedder=arguments.embedder_of(embedder),
            search_policy=arguments.optional(search_policy, "search_policy", SearchPolicy),
        )

    async def select_optimal_context(
        self,
        session_id: str,
        budget: selection.ContextBudget | None = None,
        *,
        strategy: select.Strategy = "cut",
        view: str = "default",
        sticky: bool = True,
        cache_cold: bool = False,
        allow_omission: bool = False,
        query: str | None = None,
        recall_tokens: int | None = None,
        profile: ContextProfile | None = None,
    ) -> selection.ContextSelection:
        """Return the best context of the session that fits the budget.

        With a ``query``, the messages that answer it stand before the newest turn, verbatim, in at
        most ``recall_tokens`` (by default the policy's share of the budget, or less if the rest of
        the context needs more), unless the whole history fits. The rest of the selection does not
        depend on the query: room that recall does not use stays unused, and ``recall_tokens``
        without a query reserves that room.

        ``profile`` states the preferences of the agent (with the ``cut`` strategy). Each ``view``
        name has a sticky cut of its own, and so has each profile; two agents with different needs
        use two names. ``cache_cold`` states that the provider's cache has expired, so that a new
        plan costs nothing extra. With ``allow_omission``, messages that cannot fit are listed in
        ``omitted`` instead of raising an error.

        Raises BudgetTooSmallError, NotFoundError, UsageError.
        """
        request = select.Request(
            arguments.optional(budget, "budget", selection.ContextBudget),
            strategy=strategy,
            view=view,
            sticky=sticky,
            cache_cold=cache_cold,
            allow_omission=allow_omission,
            query=query,
            recall_tokens=recall_tokens,
            profile=profile,
        )
        return await select.context(
            self._handle, check_name(session_id, what="session id"), request
        )

    async def semantic_search(
        self,
        session_id: str,
        query: str,
        budget: selection.ContextBudget | int = 1_000,
        **filters: Unpack[SearchFilters],
    ) -> selection.ContextSelection:
        """Return the messages and summaries of all levels that answer ``query``, in a budget.

        The policy's numbers of candidates (10 messages, 5 L1, 3 L2 and 1 of each level above) are
        ranked together and taken best first, as far as they fit. The whole summaries come first,
        then the verbatim messages. The filters are those of ``search``. The selection does not
        cover the session: ``coverage`` is the share of the session that it is about, and
        ``omitted`` is empty.

        Raises NotFoundError, UsageError; BudgetTooSmallError if the system prompt and the tools
        alone exceed the budget.
        """
        from hiermem.context.semantic import found
        from hiermem.search.search import Question
        from hiermem.search.select import read_filters

        name = check_name(session_id, what="session id")
        question = Question(name, query, read_filters(filters))
        if isinstance(budget, int) and not isinstance(budget, bool):
            budget = selection.ContextBudget(budget, reserve_for_messages=None)
        budget = arguments.optional(budget, "budget", selection.ContextBudget)
        return await found(self._handle, question, budget)

    async def expand(
        self,
        node: Summary | selection.ShownSummary | Hit | str,
        depth: int | None = 1,
        *,
        session_id: str | None = None,
    ) -> tuple[Summary | StoredMessage, ...]:
        """Return the sources of a summary, ``depth`` levels down; with None, the messages.

        A Summary and a Hit know their session; an id or a ShownSummary needs ``session_id``. A Hit
        on a message returns the whole message.

        Raises UsageError if the session is unknown or is not the summary's, NotFoundError.
        """
        own = node.session_id if isinstance(node, (Summary, Hit)) else None
        name = own if session_id is None else check_name(session_id, what="session id")
        if name is None:
            raise UsageError("pass session_id=..., or a Summary, which knows its session")
        if own not in (None, name):
            raise UsageError("session_id is not the session of the summary given")
        return await read.expand(self._handle, name, node, depth)


def manager_over(handle: Handle) -> ContextWindowManager:
    """Return a manager that shares the handle of a memory."""
    manager = ContextWindowManager.__new__(ContextWindowManager)
    manager._handle = handle  # noqa: SLF001 - a constructor of the class above
    return manager
