"""Extraction over any store, without a memory: a session of any length becomes one TriVector."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from hiermem import arguments, protocols, types
from hiermem.config import ExtractionOptions, HierarchyConfig
from hiermem.handle import Handle
from hiermem.process import utc_now
from hiermem.prompts import template as prompt
from hiermem.text.policy import check_name
from hiermem.tokens import as_counter


class SemanticGraphExtractor:
    """Extract sessions of one tenant over any store. Asynchronous.

    ``llm`` is a model or a plain function; without one, the rule-based offline model extracts.
    ``prompts`` replaces the templates "extract.map" and "extract.reduce".
    """

    def __init__(
        self,
        store: protocols.Store,
        llm: protocols.ModelLike | None = None,
        *,
        tenant: str = "default",
        token_counter: protocols.TokenCounter | str | None = None,
        prompts: Mapping[str, prompt.PromptTemplate | str] | None = None,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        from hiermem.api.defaults import as_llm, named_prompts
        from hiermem.handle import Handle

        self._llm = as_llm(llm)
        self._prompts = named_prompts(prompts)
        self._handle = Handle(
            store=arguments.store_of(store).tenant(check_name(tenant, what="tenant")),
            counter=as_counter(token_counter),
            config=HierarchyConfig.by_tokens(),
            configured=False,
            clock=arguments.function(clock, "clock"),
        )

    @classmethod
    def over(
        cls, handle: Handle, llm: protocols.LLM, prompts: Mapping[str, prompt.PromptTemplate | str]
    ) -> SemanticGraphExtractor:
        """Return an extractor that uses a memory's handle, model and prompts."""
        extractor = cls.__new__(cls)
        extractor._handle, extractor._llm = handle, llm  # noqa: SLF001 - a constructor of this class
        extractor._prompts = dict(prompts)  # noqa: SLF001
        return extractor

    async def execute_tri_vector_extraction(
        self,
        session_id: str,
        options: ExtractionOptions | None = None,
        *,
        on_progress: Callable[[types.ExtractionProgress], object] | None = None,
        max_calls: int | None = None,
        max_tokens: int | None = None,
        deadline: float | None = None,
    ) -> types.ExtractionReport:
        """Extract the session as it is now, store the result, and return what was done.

        A chunk that an earlier run extracted is not sent again. ``on_progress`` is called as chunks
        are done. ``max_calls``, ``max_tokens`` and ``deadline`` (seconds) end the run before they
        are exceeded. Failures of the model raise nothing; ``ExtractionReport`` lists them.

        Raises NotFoundError for an unknown session, ConflictError, ConfigError for limits
        that no request can meet, UsageError and InvalidMessageError for invalid arguments, and
        StoreError where the store or the run's record could not be written.
        """
        from hiermem.extraction.extract import extract

        arguments.run(
            max_calls=max_calls, max_tokens=max_tokens, deadline=deadline, on_progress=on_progress
        )
        return await extract(
            self._handle,
            check_name(session_id, what="session_id"),
            llm=self._llm,
            options=arguments.optional(options, "options", ExtractionOptions),
            prompts=self._prompts,
            on_progress=on_progress,
            max_calls=max_calls,
            max_tokens=max_tokens,
            deadline=deadline,
        )
