"""The extractor on its own: a session of any length becomes one TriVector, over any store.

The one rule: nothing is decided here; a call hands its arguments to the engine.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import TypeAlias

from hiermem.config import ExtractionOptions, HierarchyConfig
from hiermem.core import arguments
from hiermem.core.extraction.plan import ExtractionProgress, ExtractionReport
from hiermem.core.summaries.prompt import PromptTemplate
from hiermem.core.text.policy import check_name
from hiermem.engine.extraction.run import extract
from hiermem.engine.handle import Handle, utc_now
from hiermem.protocols import LLM, LLMRequest, LLMResponse, Store, TokenCounter
from hiermem.tokens import default_counter

#: A model, or a plain function that answers a request with text.
ModelLike: TypeAlias = (
    LLM | Callable[[LLMRequest], str | LLMResponse | Awaitable[str | LLMResponse]]
)


class SemanticGraphExtractor:
    """Extracts sessions of one tenant over any store. Asynchronous.

    ``llm`` may be a model or a plain function; without one the rule-based offline model is used.
    ``prompts`` replaces the templates "extract.map" and "extract.reduce".
    """

    def __init__(
        self,
        store: Store,
        llm: ModelLike | None = None,
        *,
        tenant: str = "default",
        token_counter: TokenCounter | None = None,
        prompts: Mapping[str, PromptTemplate | str] | None = None,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        from hiermem.api.defaults import as_llm, named_prompts

        self._llm = as_llm(llm)
        self._prompts = named_prompts(prompts)
        self._handle = Handle(
            store=arguments.store_of(store).tenant(check_name(tenant, what="tenant")),
            counter=arguments.counter_of(token_counter, default_counter),
            config=HierarchyConfig.by_tokens(),
            configured=False,
            clock=arguments.function(clock, "clock"),
        )

    @classmethod
    def over(
        cls, handle: Handle, llm: LLM, prompts: Mapping[str, PromptTemplate | str]
    ) -> SemanticGraphExtractor:
        """Make an extractor that shares a memory's handle and model."""
        extractor = cls.__new__(cls)
        extractor._handle, extractor._llm = handle, llm  # noqa: SLF001 - a constructor of this class
        extractor._prompts = dict(prompts)  # noqa: SLF001
        return extractor

    async def execute_tri_vector_extraction(
        self,
        session_id: str,
        options: ExtractionOptions | None = None,
        *,
        on_progress: Callable[[ExtractionProgress], object] | None = None,
        max_calls: int | None = None,
        max_tokens: int | None = None,
        deadline: float | None = None,
    ) -> ExtractionReport:
        """Extract the session as it is now, keep the result, and give what was done.

        What an earlier run was answered for the same stretch is not asked for again. The caps
        end the run before they are passed. See ``ExtractionReport`` for how a failure is told.

        Raises NotFoundError, CounterMismatchError, ConfigError for a limit that is impossible,
        UsageError and InvalidTextError for arguments that are none, and StoreError where the store,
        the run's record included, could not be written.
        """
        if on_progress is not None:
            arguments.function(on_progress, "on_progress")
        if max_calls is not None:
            arguments.whole(max_calls, "max_calls")
        if max_tokens is not None:
            arguments.whole(max_tokens, "max_tokens")
        if deadline is not None:
            arguments.seconds(deadline, "deadline")
        return await extract(
            self._handle,
            check_name(session_id, what="session_id"),
            llm=self._llm,
            options=arguments.optional(options, "options", ExtractionOptions, ExtractionOptions),
            prompts=self._prompts,
            on_progress=on_progress,
            max_calls=max_calls,
            max_tokens=max_tokens,
            deadline=deadline,
        )
