"""Spans: what the library does and how long it takes, for a tracer that is told.

Nothing is told unless ``set_tracer`` was called. Spans have ids, names of models and counts; texts
and keys are never in them. ``hiermem.integrations.otel`` tells OpenTelemetry.

A tracer's own errors are logged by type and end nothing: the call that it is told of may have been
paid for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Final, Literal, Protocol, TypeAlias

#: The operation of a span: a model call, a run (an update, an extraction, …), a context, a search.
Kind: TypeAlias = Literal["call", "run", "context", "search"]
Value: TypeAlias = str | int | float | bool | tuple[float, ...] | None


class Note(Protocol):
    """Adds to a span what is known only later."""

    def __call__(self, **attributes: Value) -> None:
        """Add attributes."""
        ...


#: Begins a span; the context manager ends it, with the exception that ended it, if any.
Tracer: TypeAlias = Callable[[Kind, Mapping[str, Value]], AbstractContextManager[Note]]

_LOG: Final = logging.getLogger("hiermem.tracing")


def _note_nothing(**_: Value) -> None:
    pass


_NOTHING: Final[AbstractContextManager[Note]] = nullcontext(_note_nothing)
_tracer: Tracer | None = None


def set_tracer(tracer: Tracer | None) -> None:
    """Tell ``tracer`` of every span in this process from now on; None tells nobody."""
    global _tracer  # noqa: PLW0603 - as OpenTelemetry's own: one process has one tracer
    _tracer = tracer


def span(kind: Kind, **attributes: Value) -> AbstractContextManager[Note]:
    """Return a context manager for what is done under it; it gives a function to note more."""
    return _NOTHING if _tracer is None else _Span(_tracer, kind, attributes)


class _Span:
    """A span of a tracer that may fail, and may not swallow what happens under it."""

    def __init__(self, tracer: Tracer, kind: Kind, attributes: Mapping[str, Value]) -> None:
        self._tracer, self._attributes = tracer, attributes
        self._kind: Kind = kind
        self._made: AbstractContextManager[Note] | None = None
        self._pass_on: Note = _note_nothing

    def __enter__(self) -> Note:
        try:
            made = self._tracer(self._kind, self._attributes)
            self._pass_on = made.__enter__()
            self._made = made
        except Exception as error:  # noqa: BLE001
            self._failed(error)
        return self._note

    def _note(self, **attributes: Value) -> None:
        try:
            self._pass_on(**attributes)
        except Exception as error:  # noqa: BLE001
            self._failed(error)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._made is None:
            return
        try:
            self._made.__exit__(kind, error, trace)
        except Exception as failed:  # noqa: BLE001
            if failed is not error:
                self._failed(failed)

    def _failed(self, error: Exception) -> None:
        _LOG.warning("the tracer failed in a span of a %s: %s", self._kind, type(error).__name__)
