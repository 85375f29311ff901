"""Spans: what the library does and how long it takes, for a tracer that is told.

Nothing is told unless ``set_tracer`` was called. Spans have ids, names of models and counts; texts
and keys are never in them. ``hiermem.integrations.otel`` tells OpenTelemetry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Literal, Protocol, TypeAlias

__all__ = ["Kind", "Note", "Tracer", "Value", "set_tracer", "span"]

#: What a span is of: a model call, a run (an update, an extraction, …), a context, a search.
Kind: TypeAlias = Literal["call", "run", "context", "search"]
Value: TypeAlias = str | int | float | bool | None


class Note(Protocol):
    """Adds to a span what is known only later."""

    def __call__(self, **attributes: Value) -> None:
        """Add attributes."""
        ...


#: Begins a span; the context manager ends it, with the exception that ended it, if any.
Tracer: TypeAlias = Callable[[Kind, Mapping[str, Value]], AbstractContextManager[Note]]


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
    return _NOTHING if _tracer is None else _tracer(kind, attributes)
