"""Says what follows from a model's answer: take it, ask again, or give up.

Each task judges its answers by its own rules, and says the verdict in these words. The engine asks
until an answer is accepted or rejected; ``calls.ask`` holds that loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from hiermem.calls.failures import Cause
from hiermem.protocols import LLMRequest, LLMResponse

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Accepted(Generic[T]):
    """The answer, or a part of it, or an earlier one, is taken; ``value`` is what it gives.

    ``reason`` says why the newest answer was not the one that was taken, "" where it was.
    """

    value: T
    model: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Retry(Generic[T]):
    """The model is asked once more, with ``request``; ``judge`` judges the next answer.

    ``reason`` says what was wrong and holds no text of the answer.
    """

    request: LLMRequest
    reason: str
    judge: Callable[[LLMResponse], Accepted[T] | Retry[T] | Rejected]


@dataclass(frozen=True, slots=True)
class Rejected:
    """No answer can be used, and the model is not asked again.

    ``reason`` is what the journal of calls says of the answer; ``cause`` and ``detail`` are what
    the failure is reported as.
    """

    reason: str
    cause: Cause = "provider"
    detail: str = ""


Verdict: TypeAlias = Accepted[T] | Retry[T] | Rejected
Judge: TypeAlias = Callable[[LLMResponse], Verdict[T]]
