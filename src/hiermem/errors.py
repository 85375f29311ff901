"""Every exception of hiermem: what failed, whether a retry helps, and whether money was spent.

A class is something that callers treat apart; what distinguishes errors of one class is an
attribute. An error's text names the thing by its id and says what would be right. It never contains
message text, summary text or a key, so it can be written to any log.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

#: What a call contradicts: the content under a message's key; a history given to ``sync``; a
#: session that exists; the target of a copy; an erased or quarantined message; a space's rules; the
#: token counter or the embedder of a session; the secret of a store.
Conflict: TypeAlias = Literal[
    "key", "history", "exists", "copy", "withdrawn", "rules", "counter", "embedder", "secret"
]
#: Why a model call failed: "transient" (a rate limit, a 5xx, a dropped connection), "timeout" (no
#: answer in time), "permanent" (authentication, a bad request, an unknown model), "overflow" (the
#: request does not fit the model's window), "refused" (the model or its provider declined),
#: "invalid" (an answer, or vectors, of another form than was asked for).
ModelErrorKind: TypeAlias = Literal[
    "transient", "timeout", "permanent", "overflow", "refused", "invalid"
]


class HiermemError(Exception):
    """The root of all errors that hiermem raises on purpose."""

    #: Whether the same call may succeed later without a change by the caller.
    retryable: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        """Let every error be pickled and copied, whatever its constructor takes."""
        return _restored, (type(self), self.args, self.__dict__)


def _restored(
    kind: type[HiermemError], given: tuple[Any, ...], state: dict[str, Any]
) -> HiermemError:
    error = kind.__new__(kind, *given)
    error.__dict__.update(state)
    return error


def name_of(error: BaseException) -> str:
    """Return an error's class, and its kind if it has one: what may be shown of any error.

    >>> name_of(ModelError("503", kind="transient"))
    'ModelError (transient)'
    """
    name, kind = type(error).__name__, getattr(error, "kind", None)
    return f"{name} ({kind})" if isinstance(error, HiermemError) and kind else name


class UsageError(HiermemError, ValueError):
    """An argument is of the wrong type, out of range or contradicts another one."""


class ConfigError(UsageError):
    """A configuration holds an impossible value, or values that contradict each other.

    With some, summaries would not get smaller from level to level.
    """


class InvalidMessageError(UsageError):
    """A message breaks the message contract (role, timestamp, tool calls), or a text its rules.

    A text or a name holds a lone surrogate or a NUL, or is longer than its cap.
    """


class ConflictError(UsageError):
    """The call contradicts what is stored; nothing was written. ``kind`` says what.

    ``session_id`` and ``index`` name the session and its message, ``key`` the key of "key". The
    error's text does not name the key, because keys may be private.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: Conflict,
        session_id: str | None = None,
        index: int | None = None,
        key: str | None = None,
    ) -> None:
        super().__init__(message)
        self.kind: Conflict = kind
        self.session_id = session_id
        self.index = index
        self.key = key


class NotFoundError(HiermemError, LookupError):
    """This tenant has no session, message, summary or view of that name."""


class ClosedError(HiermemError):
    """The memory or its store was closed before this call, or the session ``session_id`` is."""

    def __init__(self, message: str = "", *, session_id: str | None = None) -> None:
        super().__init__(message or f"session {session_id!r} is closed; call reopen() first")
        self.session_id = session_id


class BusyError(HiermemError):
    """Another call changed what this one read, or is writing it; the same call may succeed now.

    A session was edited, erased from or re-packed while it was read (``session_id`` is None if
    several were read at once), another run writes the space's bank, or the clocks of this machine
    and of the store moved apart. Nothing was kept of it.
    """

    retryable = True

    def __init__(self, message: str = "", *, session_id: str | None = None) -> None:
        what = "a session" if session_id is None else f"session {session_id!r}"
        super().__init__(message or f"{what} changed while it was read; call again")
        self.session_id = session_id


class ForkedProcessError(UsageError):
    """A memory (or its store) was used in a process that was forked after it was opened."""

    def __init__(
        self,
        message: str = ("this memory was opened before os.fork(); open it in this process too"),
    ) -> None:
        super().__init__(message)


class BudgetTooSmallError(HiermemError):
    """The least that a context must show does not fit the token budget.

    ``minimum`` is a budget, in tokens, that the same call accepts now: the newest exchange group,
    300 tokens for views and 40 for each root, or less. The text mentions ``allow_omission`` if that
    would help (``omission``).
    """

    def __init__(self, *, budget: int, minimum: int, why: str, omission: bool = False) -> None:
        hint = "; or pass allow_omission=True and see selection.omitted" if omission else ""
        super().__init__(
            f"a budget of {budget} tokens is too small: {why}; pass at least {minimum}{hint}"
        )
        self.budget, self.minimum, self.omission = budget, minimum, omission


class FileError(HiermemError):
    """A file, a folder of bank files, or a bank in object storage could not be read or written.

    A file to import is of no known format, breaks its format's rules, or is too large. Each file in
    a folder is complete, and object storage holds one whole revision. ``retryable`` is set where
    object storage gave no answer, or a passing one.
    """


class SpendLimitError(HiermemError):
    """A cap on calls, tokens or time was reached; the call was not made and cost nothing.

    If the model failed too often in a row, it is not called for ``retry_after`` seconds; ``reason``
    says why its last call failed, "" if that is not known.
    """

    def __init__(self, message: str, *, retry_after: float | None = None, reason: str = "") -> None:
        super().__init__(message)
        self.retry_after, self.reason = retry_after, reason
        self.retryable = retry_after is not None


class StoreError(HiermemError):
    """The store failed. ``committed`` says whether the write took effect; None means unknown.

    It is ``retryable`` if another process locked the store for too long; nothing was written then.
    """

    def __init__(
        self, message: str, *, retryable: bool = False, committed: bool | None = False
    ) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.committed = committed


class ReadOnlyError(StoreError):
    """The store was opened for reading only; nothing was written."""

    def __init__(self) -> None:
        super().__init__("the store was opened with read_only=True; reopen it without")


class StoreCorruptError(StoreError):
    """The store is of another version of hiermem, or damaged, or none; it was left untouched."""


class ModelError(HiermemError):
    """A model call failed. ``kind`` says why.

    ``charged`` says whether the provider charged for it; None means unknown. ``retry_after`` is the
    pause in seconds that the provider requested, or None. ``detail`` says what was wrong in words
    that hold no text and no key, so it is kept and shown; "" where only the kind can be.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: ModelErrorKind = "permanent",
        charged: bool | None = None,
        retry_after: float | None = None,
        detail: str = "",
    ) -> None:
        super().__init__(message)
        self.kind: ModelErrorKind = kind
        self.charged = charged
        self.retry_after = retry_after
        self.detail = detail
        self.retryable = kind in ("transient", "timeout")
