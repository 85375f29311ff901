"""Runs calls of an embedder: in batches, within its rate limits, with retries.

Every answer is checked before it is used, and every text sent is valid Unicode without NUL.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Literal

from hiermem import errors
from hiermem.calls.failures import described
from hiermem.calls.rate_limit import RateLimiter, sleep_unless
from hiermem.calls.retry import retrying
from hiermem.config import SearchPolicy
from hiermem.protocols import Embedder
from hiermem.search import vectors
from hiermem.search.index import Array
from hiermem.search.vectors import Identity
from hiermem.tokens import sizes_of

_log = logging.getLogger("hiermem.search")
#: How often a request is retried after a transient failure.
_RETRIES: Final = 4
#: The most seconds that one request takes.
EMBED_TIMEOUT: Final = 60.0
#: The most seconds that a question waits for the rate limit; a caller waits for its hits.
_QUESTION_WAIT: Final = 1.0
#: How many questions' vectors are cached.
_CACHED_QUESTIONS: Final = 256
#: The most characters of a question that are sent to an embedder.
_MAX_QUESTION: Final = 8_000


class EmbedderClient:
    """A client of one embedder. ``requests`` counts the requests sent."""

    def __init__(
        self,
        embedder: Embedder,
        policy: SearchPolicy,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.identity = Identity(embedder.name, embedder.dimension)
        self.weight = float(getattr(embedder, "weight", 1.0))
        self._embedder, self._policy = embedder, policy
        self._clock, self._sleep = clock, sleep
        self._rate_limiter = RateLimiter(
            embedder,
            requests=policy.requests_per_minute,
            tokens=policy.tokens_per_minute,
            clock=clock,
            sleep=sleep,
        )
        self._questions: OrderedDict[str, Array] = OrderedDict()
        self.requests = 0

    async def question(self, text: str, count: Callable[[str], int]) -> Array | None:
        """Return a question's vector; None if the text is blank or the embedder gives none in time.

        A search without vectors is better than none, and better than a search that waits. So a
        question keeps to the rate limits as passages do, and gives up if they leave no room within
        a moment.
        """
        clean = _clean(text[:_MAX_QUESTION])
        if not clean.strip():
            return None
        vector = self._questions.get(clean)
        if vector is None and self._rate_limiter.down_for():
            return None
        if vector is None:
            try:
                tokens, until = count(clean), self._clock() + _QUESTION_WAIT
                rows = await self._request([clean], tokens, "query", lambda: self._clock() > until)
            except (errors.ModelError, errors.SpendLimitError) as error:
                _log.warning("the embedder failed (%s): words alone are compared", error)
                return None
            if rows is None:
                _log.warning("the embedder is at its limits: words alone are compared")
                return None
            vector = self._questions[clean] = rows[0]
            while len(self._questions) > _CACHED_QUESTIONS:
                self._questions.popitem(last=False)
        self._questions.move_to_end(clean)
        return vector

    async def passages(
        self, texts: Sequence[str], count: Callable[[str], int], stopped: Callable[[], object]
    ) -> Array | None:
        """Return the vectors of texts, one a row; None if ``stopped`` before all were made.

        Raises the embedder's last error, ModelError, and SpendLimitError if the embedder
        kept failing.
        """
        import numpy as np

        tables: list[Array] = []
        clean = [_clean(text) for text in texts]
        for batch, tokens in self._batches(clean, await sizes_of(count, clean)):
            rows = await self._with_retries(batch, tokens, stopped)
            if rows is None:
                return None
            tables.append(rows)
        dimension = self.identity.dimension
        return np.concatenate([np.empty((0, dimension), dtype=np.float32), *tables])

    def _batches(self, texts: Sequence[str], sizes: Sequence[int]) -> list[tuple[list[str], int]]:
        """Split texts of these sizes into requests that each fit the limits."""
        most = self._policy.tokens_per_minute
        batches: list[tuple[list[str], int]] = []
        for text, tokens in zip(texts, sizes, strict=True):
            if batches:
                batch, filled = batches[-1]
                room = len(batch) < self._policy.embed_batch
                if room and (most is None or filled + tokens <= most):
                    batch.append(text)
                    batches[-1] = (batch, filled + tokens)
                    continue
            batches.append(([text], tokens))
        return batches

    async def _with_retries(
        self, texts: Sequence[str], tokens: int, stopped: Callable[[], object]
    ) -> Array | None:
        async def pause(seconds: float) -> None:
            await sleep_unless(stopped, seconds, self._sleep)

        async for attempt in retrying(retries=_RETRIES, pause=pause):
            with attempt:
                return await self._request(texts, tokens, "passage", stopped)
        raise AssertionError("the last try returns or raises")

    async def _request(
        self,
        texts: Sequence[str],
        tokens: int,
        kind: Literal["query", "passage"],
        stopped: Callable[[], object],
    ) -> Array | None:
        """Send a request once the rate limits admit it, and tell them how it ended.

        Returns None if ``stopped`` first.
        """
        if not await self._rate_limiter.admit(tokens, stopped) or stopped():
            return None
        try:
            rows = await self._send(texts, kind)
        except errors.ModelError as error:
            if not error.retryable:
                raise
            self._rate_limiter.fail(hash(texts[0]), error.retry_after, reason=error.detail)
            raise
        self._rate_limiter.succeed()
        return rows

    async def _send(self, texts: Sequence[str], kind: Literal["query", "passage"]) -> Array:
        """Send one request and check the answer."""
        self.requests += 1
        embedder: Any = self._embedder
        answer: Any = None
        raised = ""
        try:
            async with asyncio.timeout(EMBED_TIMEOUT):
                answer = embedder.embed(list(texts), kind=kind)
                if inspect.isawaitable(answer):
                    answer = await answer
        except TimeoutError:
            raise errors.ModelError(
                f"embedder {self.identity.name!r} did not answer in time", kind="timeout"
            ) from None
        except errors.HiermemError:
            raise
        except Exception as error:  # noqa: BLE001 - an embedder may raise anything
            raised = described(error, texts)
            if isinstance(error, TypeError):
                raised += "; it was called as embed(texts, kind=…)"
        if raised:
            # Whatever the embedder's client raises for a dropped connection, a later call may
            # succeed. Raised outside the handler, because the original error may hold texts or a
            # key and must not become the context.
            raise errors.ModelError(
                f"embedder {self.identity.name!r} ended in {raised}", kind="transient"
            )
        try:
            return vectors.check(answer, many=len(texts), dimension=self.identity.dimension)
        except ValueError as error:
            raise errors.ModelError(
                f"embedder {self.identity.name!r}: {error}", kind="invalid"
            ) from None


def _clean(text: str) -> str:
    """Replace what cannot be sent anywhere by U+FFFD: NUL and lone surrogates."""
    if "\0" in text:
        text = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
