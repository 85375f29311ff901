"""Spans: what the library does and how long it takes, for a tracer that is told.

Nothing is told unless ``set_tracer`` was called. Spans have ids, names of models and counts; texts
and keys are never in them. ``hiermem.integrations.otel`` tells OpenTelemetry.

A tracer's own errors are logged by type and end nothing: the call that it is told of may have been
paid for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Final, Literal, TypeAlias

#: The operation of a span: a model call, a run (an update, an extraction, …), a context, a search.
Kind: TypeAlias = Literal["call", "run", "context", "search"]
Value: TypeAlias = str | int | float | bool | tuple[float, ...] | None


#: Adds to a span what is known only later, as attributes by name.
Note: TypeAlias = Callable[..., None]
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
    return _NOTHING if _tracer is None else _guarded(_tracer, kind, attributes)


@contextmanager
def _guarded(tracer: Tracer, kind: Kind, attributes: Mapping[str, Value]) -> Generator[Note]:
    """Run a span of a tracer that may fail, and may not swallow what happens under it."""

    def failed(error: Exception) -> None:
        _LOG.warning("the tracer failed in a span of a %s: %s", kind, type(error).__name__)

    def guard(work: Callable[..., object], /, *args: object, **more: Value) -> None:
        try:
            work(*args, **more)
        except Exception as error:  # noqa: BLE001
            if error not in args:
                failed(error)

    try:
        made = tracer(kind, attributes)
        note = made.__enter__()
    except Exception as error:  # noqa: BLE001
        failed(error)
        yield _note_nothing
        return
    try:
        yield partial(guard, note)
    except BaseException as error:
        guard(made.__exit__, type(error), error, error.__traceback__)
        raise
    guard(made.__exit__, None, None, None)
