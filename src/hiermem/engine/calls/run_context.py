"""Defines what a model call needs of its run, and the state of a call while it lasts.

These are contracts. Updates, extractions and consolidations fulfil them; ``engine.calls.retry`` and
``engine.calls.call`` know no more of a run than this.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, Protocol

from typing_extensions import TypeVar

from hiermem.engine.calls.budget import Budget
from hiermem.engine.calls.rate_limit import RateLimiter
from hiermem.engine.calls.slots import SessionSlots
from hiermem.errors import ModelError
from hiermem.protocols import LLM
from hiermem.types import Node
from hiermem.types.transaction import Attempt


class CallSubject(Protocol):
    """What calls are made for: a node, a chunk, a batch of notes."""

    @property
    def id(self) -> str:
        """The id under which the calls are journalled."""
        ...


N = TypeVar("N", bound=CallSubject, default=Node)


class RetryPolicy(Protocol):
    """How long a call may take, in seconds, and how often it is retried."""

    @property
    def call_timeout(self) -> float: ...  # noqa: D102 - described above
    @property
    def retries(self) -> int: ...  # noqa: D102 - described above


class Claims(Protocol[N]):
    """Takes leases and journals calls. ``engine.summaries.commit.NodeCommits`` is one."""

    def claimed(self, node_id: str, /) -> bool:
        """Return whether this run holds the lease."""
        ...

    async def claim(self, node: N, /) -> N | None:
        """Take the lease; None where another run was faster."""
        ...

    async def begin(self, attempt: Attempt, *, ended: Sequence[Attempt]) -> None:
        """Journal, before the call, that it is made, and how the calls before it ended."""
        ...

    def end(self, attempt: Attempt, /) -> None:
        """Note how a journalled call ended; an unknown outcome is counted."""
        ...


class RunContext(Protocol[N]):
    """What a call needs of its run. ``engine.summaries.run.UpdateRun`` is one."""

    @property
    def llm(self) -> LLM: ...  # noqa: D102 - described above
    @property
    def policy(self) -> RetryPolicy: ...  # noqa: D102 - described above
    @property
    def budget(self) -> Budget: ...  # noqa: D102 - described above
    @property
    def rate_limiter(self) -> RateLimiter: ...  # noqa: D102 - described above
    @property
    def claims(self) -> Claims[N]: ...  # noqa: D102 - described above
    @property
    def run_id(self) -> str: ...  # noqa: D102 - described above
    @property
    def session_id(self) -> str: ...  # noqa: D102 - described above
    @property
    def now(self) -> Callable[[], datetime]: ...  # noqa: D102 - described above
    @property
    def sleep(self) -> Callable[[float], Awaitable[None]]: ...  # noqa: D102 - described above
    @property
    def slots(self) -> SessionSlots: ...  # noqa: D102 - described above

    def mark_waiting(self) -> AbstractContextManager[None]:
        """Mark the running task as waiting: cancelling it now loses no work."""
        ...


class ClaimLostError(Exception):
    """Another run holds the node."""


class UnexpectedModelError(ModelError):
    """The model raised something other than a ModelError, or returned no valid answer.

    It costs one attempt.
    """


@dataclass(slots=True)
class CallState(Generic[N]):
    """The calls for one node: the node as claimed, and what the calls took so far."""

    node: N
    input_tokens: int
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float | None = None
    ended: list[Attempt] = field(default_factory=list[Attempt])
