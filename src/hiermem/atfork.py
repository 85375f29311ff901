"""What is done around ``os.fork()``, so that a child works that was forked beside another call.

A child has one thread. What the others were in the middle of stays for ever as it was: modules half
loaded, locks held. So before it copies the process, a fork waits until no other thread is

- in the middle of an import that a call of ours may need,
- in a function marked by ``finish_before_fork``, or in one like it of a package that we use.

That is read off the threads' stacks, while this thread holds no lock of ours, so a fork cannot lock
itself out. It waits for a minute at most. Forks in the first moments of ``import hiermem``
itself, before this module is there, are not covered.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 - see the end of this module
import logging  # noqa: F401
import os
import sys
from _thread import get_ident
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from time import monotonic, sleep
from types import CodeType, FrameType
from typing import Any, Final, TypeAlias, TypeVar

__all__ = ["at_fork", "finish_before_fork", "let_fork"]

F = TypeVar("F", bound=Callable[..., Any])

#: The longest that a fork waits for an import, and for a function that was marked, in seconds.
_IMPORTS: Final = 60.0
_FUNCTIONS: Final = 10.0
#: Between two looks at the other threads, in seconds.
_PAUSE: Final = 0.001
#: The packages whose import a fork waits for: ours, those that ours load, and what those load late.
#: The standard library counts, too. A module of the application does not: it may run for ever.
_AWAITED: Final = sys.stdlib_module_names | {
    "agents", "aiolimiter", "annotated_types", "anthropic", "anyio", "certifi", "h11", "hiermem",
    "httpcore", "httpcore2", "httpx", "httpx2", "idna", "jiter", "langchain", "langchain_core",
    "litellm", "mcp", "mcp_types", "numpy", "obstore", "openai", "opentelemetry", "procrastinate",
    "psycopg", "psycopg_binary", "psycopg_pool", "pydantic", "pydantic_ai", "pydantic_core",
    "regex", "requests", "rich", "sentence_transformers", "sniffio", "snowballstemmer",
    "starlette", "tenacity", "tiktoken", "tiktoken_ext", "torch", "transformers", "typer",
    "typing_extensions", "typing_inspection", "urllib3", "uvicorn",
}  # fmt: skip
_PYDANTIC: Final = ("pydantic.main", "pydantic.type_adapter")
#: The functions that hold a lock of the whole process. That of functools does until Python 3.12.
_finished: Final[set[CodeType]] = set()
if sys.version_info < (3, 12):
    _finished.add(cached_property.__get__.__code__)


#: What runs before a fork, after it in the parent, and in the child.
_Hook: TypeAlias = tuple[Callable[[], object], Callable[[], object], Callable[[], object]]
_hooks: Final[list[_Hook]] = []
#: The threads that are about to fork.
_forking: Final[set[int]] = set()
#: The hooks that ran before a fork under way, by the thread that forks.
_ran: Final[dict[int, list[_Hook]]] = {}


def at_fork(
    *,
    before: Callable[[], object] = bool,
    in_parent: Callable[[], object] = bool,
    in_child: Callable[[], object] = bool,
) -> None:
    """Have these functions called around every later fork, where the platform forks at all.

    ``before`` may be called more than once, each time followed by ``in_parent``, until no other
    thread is in the middle of something.
    """
    _hooks.append((before, in_parent, in_child))


def finish_before_fork(function: F) -> F:
    """Mark a function that holds what a child would need: a fork waits while a thread is in it."""
    _finished.add(function.__code__)
    return function


def let_fork() -> None:
    """Wait while another thread is about to fork.

    It is called before a marked function that may begin again at once: a fork would wait long for
    a moment in which no thread is in one.
    """
    while _forking and get_ident() not in _forking:
        sleep(_PAUSE)


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _imported(stack: Iterable[FrameType]) -> set[str]:
    """Return the modules that a thread is in the middle of importing."""
    return {
        str(frame.f_locals.get("name"))
        for frame in stack
        if frame.f_code.co_name == "_find_and_load"
        and frame.f_code.co_filename.startswith("<frozen importlib")
    }


def _holds_lock(frame: FrameType) -> bool:
    # Pydantic builds every model under one lock, and its core may hold one while it validates.
    return frame.f_code in _finished or frame.f_globals.get("__name__") in _PYDANTIC


def _is_awaited_anywhere(waited: float) -> bool:
    """Return whether another thread is in the middle of what a child would need.

    ``waited`` is how long the fork has waited. A thread that waits for an import of this thread is
    not waited for: both would wait for ever.
    """
    threads = sys._current_frames()  # noqa: SLF001 - documented, for debuggers
    own = _imported(_stack(threads.pop(get_ident())))
    for stack in map(list, map(_stack, threads.values())):
        names = _imported(stack)
        if own.isdisjoint(names) and (
            (waited < _IMPORTS and any(name.partition(".")[0] in _AWAITED for name in names))
            or (waited < _FUNCTIONS and any(map(_holds_lock, stack)))
        ):
            return True
    return False


def _is_alone(since: float) -> bool:
    """Return whether no other thread is in the middle of what a child would need."""
    if len(sys._current_frames()) == 1:  # noqa: SLF001
        return True
    # A thread that comes back from a sleep has the interpreter for itself for a while, in which no
    # other thread can begin anything before the fork.
    sleep(_PAUSE)
    return not _is_awaited_anywhere(monotonic() - since)


def _before_fork() -> None:
    begun = monotonic()
    _forking.add(get_ident())
    while True:
        while not _is_alone(begun):
            pass
        ran = _ran[get_ident()] = _hooks[::-1]
        for before, _, _ in ran:
            before()
        # A hook may take a while, and a thread may wait for what it holds.
        if _is_alone(begun):
            return
        _undo()


def _undo() -> None:
    for _, in_parent, _ in _ran.pop(get_ident(), [])[::-1]:
        in_parent()


def _in_parent() -> None:
    _undo()
    _forking.discard(get_ident())


def _in_child() -> None:
    for _, _, in_child in _ran.pop(get_ident(), [])[::-1]:
        in_child()
    _ran.clear()
    _forking.clear()


# What is registered first runs last before a fork: before the hooks of the two modules imported
# above, whose locks an import may need.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)
