"""Extraction over any store, without a memory: a session of any length becomes one TriVector."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from hiermem import arguments, protocols, types
from hiermem.config import ExtractionOptions, Limits
from hiermem.process import utc_now
from hiermem.prompts import template as prompt
from hiermem.records.store import StoreLike
from hiermem.text.policy import check_name


class SemanticGraphExtractor:
    """Extract sessions of one tenant over any store. Asynchronous.

    ``llm`` is a model or a plain function; without one, the rule-based offline model extracts.
    ``prompts`` replaces the templates "extract.map" and "extract.reduce".
    """

    def __init__(
        self,
        store: StoreLike,
        llm: protocols.ModelLike | None = None,
        *,
        tenant: str = "default",
        token_counter: protocols.TokenCounter | str | None = None,
        prompts: Mapping[str, prompt.PromptTemplate | str] | None = None,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        from hiermem.api.defaults import as_llm, handle_over, named_prompts

        self._llm = as_llm(llm)
        self._prompts = named_prompts(prompts)
        self._handle = handle_over(
            store, tenant, token_counter=token_counter, clock=arguments.function(clock, "clock")
        )

    async def execute_tri_vector_extraction(
        self,
        session_id: str,
        options: ExtractionOptions | None = None,
        *,
        on_progress: Callable[[types.ExtractionProgress], object] | None = None,
        limits: Limits | None = None,
    ) -> types.ExtractionReport:
        """Extract the session as it is now, store the result, and return what was done.

        A chunk that an earlier run extracted is not sent again. ``on_progress`` is called as chunks
        are done. Failures of the model raise nothing; ``ExtractionReport`` lists them.

        Raises NotFoundError for an unknown session, ConflictError, ConfigError for limits
        that no request can meet, UsageError and InvalidMessageError for invalid arguments, and
        StoreError where the store or the run's record could not be written.
        """
        from hiermem.extraction.extract import extract

        limits = arguments.run(limits, on_progress=on_progress)
        return await extract(
            self._handle,
            check_name(session_id, what="session_id"),
            llm=self._llm,
            options=arguments.optional(options, "options", ExtractionOptions),
            prompts=self._prompts,
            on_progress=on_progress,
            limits=limits,
        )
