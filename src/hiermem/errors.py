"""Every exception of hiermem: what failed, whether a retry helps, and whether money was spent.

An error's text names the thing by its id and says what would be right. It never contains message
text, summary text or a key, so it can be written to any log.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

__all__ = [
    "BudgetTooSmallError",
    "ClockMovedError",
    "ConfigError",
    "ConvergenceError",
    "CounterMismatchError",
    "EmbedderMismatchError",
    "FolderError",
    "ForkedProcessError",
    "HiermemError",
    "HistoryRewrittenError",
    "IllegalTransitionError",
    "InvalidAnswerError",
    "InvalidMessageError",
    "InvalidTextError",
    "InvalidVectorError",
    "MemoryClosedError",
    "MessageConflictError",
    "MessageWithdrawnError",
    "ModelDownError",
    "ModelError",
    "ModelOverflowError",
    "ModelRefusedError",
    "ModelTimeoutError",
    "NotFoundError",
    "PermanentModelError",
    "ReadOnlyError",
    "RulesConflictError",
    "SecretMismatchError",
    "SessionChangedError",
    "SessionClosedError",
    "SessionDiffersError",
    "SessionExistsError",
    "SpaceBusyError",
    "SpendLimitError",
    "StoreBusyError",
    "StoreCorruptError",
    "StoreError",
    "StoreNewerError",
    "TransientModelError",
    "UnreadableFileError",
    "UsageError",
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


class UsageError(HiermemError, ValueError):
    """An argument is of the wrong type, out of range or contradicts another one."""


class ConfigError(UsageError):
    """A configuration holds an impossible value, or values that contradict each other."""


class ConvergenceError(ConfigError):
    """A configuration with which summaries would not get smaller from level to level."""


class CounterMismatchError(UsageError):
    """A session was counted with a different token counter."""


class EmbedderMismatchError(UsageError):
    """A session's vectors were made by a different embedder."""

    def __init__(self, session_id: str, *, made: str, given: str) -> None:
        super().__init__(
            f"session {session_id!r} has vectors of {made}, not of {given}; call "
            "memory.reembed(), or open it with that embedder"
        )
        self.session_id = session_id


class InvalidMessageError(UsageError):
    """A message breaks the message contract (role, timestamp, tool calls, size caps)."""


class InvalidTextError(InvalidMessageError):
    """A text contains a lone surrogate or a NUL, or is longer than its cap."""


class MessageConflictError(HiermemError):
    """A message key was seen before with other content; nothing was written.

    ``key`` is the key, ``index`` the index of the message that has it. The error's text names only
    the index, because keys may be private.
    """

    def __init__(self, session_id: str, *, key: str, index: int) -> None:
        super().__init__(
            f"session {session_id!r}: this message key names message {index} with other "
            "content; use a new key"
        )
        self.session_id = session_id
        self.key = key
        self.index = index


class SessionClosedError(HiermemError):
    """The session was closed; ``reopen()`` makes it writable again."""

    def __init__(self, session_id: str) -> None:
        super().__init__(f"session {session_id!r} is closed; call reopen() first")
        self.session_id = session_id


class SessionChangedError(HiermemError):
    """A session was edited, erased from or re-packed while it was being read.

    Nothing computed from it was kept; the same call may succeed now. ``session_id`` is None if
    several were read at once.
    """

    retryable = True

    def __init__(self, session_id: str | None) -> None:
        what = "a session" if session_id is None else f"session {session_id!r}"
        super().__init__(f"{what} changed while it was read; call again")
        self.session_id = session_id


class HistoryRewrittenError(UsageError):
    """A history given to ``sync`` is not what the session holds; nothing was written.

    ``index`` is the first message of the session that the history has not.
    """

    def __init__(self, session_id: str, *, index: int) -> None:
        super().__init__(
            f"the history differs from session {session_id!r} at message {index}; pass "
            'on_rewrite="fork" or "report"'
        )
        self.session_id = session_id
        self.index = index


class SessionExistsError(UsageError):
    """A fork was given the id of an existing session; nothing was written."""

    def __init__(self, session_id: str) -> None:
        super().__init__(f"session {session_id!r} exists already; give the fork another id")
        self.session_id = session_id


class SessionDiffersError(UsageError):
    """A copy would overwrite what is in the target; that was left as it was.

    ``session_id`` is the session that differs, "" where it is what belongs to no session: spaces,
    and the journal of what was erased.
    """

    def __init__(self, session_id: str, *, erased: bool = False) -> None:
        what = f"session {session_id!r}" if session_id else "what belongs to no session (spaces)"
        if erased:
            why = (
                "was erased in the target; erase it in the source too, or copy other sessions "
                "singly"
            )
        else:
            why = "differs in the target; erase it there, or copy to another store"
        super().__init__(f"{what} {why}")
        self.session_id = session_id


class MessageWithdrawnError(UsageError):
    """An erased or quarantined message cannot be edited; nothing was written."""

    def __init__(self, session_id: str, *, index: int, state: str) -> None:
        super().__init__(
            f"message {index} of session {session_id!r} was {state} and takes no edit; append "
            "a new message"
        )
        self.session_id = session_id
        self.index = index


class MemoryClosedError(HiermemError):
    """The memory (or its store) was closed before this call."""


class ForkedProcessError(UsageError):
    """A memory (or its store) was used in a process that was forked after it was opened."""

    def __init__(
        self,
        message: str = ("this memory was opened before os.fork(); open it in this process too"),
    ) -> None:
        super().__init__(message)


class NotFoundError(HiermemError, LookupError):
    """This tenant has no session, message, summary or view of that name."""


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
        self.budget = budget
        self.minimum = minimum


class IllegalTransitionError(HiermemError):
    """A summary cannot go from its current status to the requested one."""


class RulesConflictError(UsageError):
    """A space was opened with different rules; the rules of a space never change."""

    def __init__(self, space: str) -> None:
        super().__init__(
            f"space {space!r} has other rules or another person; omit both, or use another name"
        )
        self.space = space


class SpaceBusyError(HiermemError):
    """Another run is consolidating, loading or rolling back the space's bank."""

    retryable = True

    def __init__(self, space: str) -> None:
        super().__init__(f"another run is writing space {space!r}; call again")
        self.space = space


class FolderError(HiermemError):
    """A folder of bank files, or a bank in object storage, could not be read or written.

    Each file in a folder is complete, and object storage holds one whole revision. ``retryable`` is
    set where object storage gave no answer, or a passing one.
    """


class UnreadableFileError(UsageError):
    """A file to import is of no known format, breaks its format's rules, or is too large."""


class SpendLimitError(HiermemError):
    """A cap on calls, tokens or time was reached; the call was not made and cost nothing."""


class ModelDownError(SpendLimitError):
    """A model failed too often in a row and is not called for ``retry_after`` seconds.

    ``reason`` says why its last call failed, "" if that is not known.
    """

    retryable = True

    def __init__(self, retry_after: float, reason: str = "") -> None:
        why = f": {reason}" if reason else ""
        super().__init__(f"the model keeps failing{why}; call again in {retry_after:.0f} seconds")
        self.retry_after, self.reason = retry_after, reason


class StoreError(HiermemError):
    """The store failed. ``committed`` says whether the write took effect; None means unknown."""

    committed: bool | None = False


class StoreBusyError(StoreError):
    """Another process locked the store for longer than the busy timeout; nothing was written."""

    retryable = True


class ReadOnlyError(StoreError):
    """The store was opened for reading only; nothing was written."""

    def __init__(self) -> None:
        super().__init__("the store was opened with read_only=True; reopen it without")


class ClockMovedError(StoreError):
    """The clock of this machine and that of the store moved apart; nothing was claimed.

    ``seconds`` is by how much, since they were last compared.
    """

    retryable = True

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"the store's clock moved by {seconds:.1f} seconds; nothing was claimed, call again"
        )
        self.seconds = seconds


class SecretMismatchError(StoreError):
    """The rows come from a store with another secret; nothing was written.

    Rendered records are signed with the store's secret and would not be recognised under another.
    """


class StoreCorruptError(StoreError):
    """The file is no store of a released hiermem, or it is damaged; it was left untouched."""


class StoreNewerError(StoreError):
    """The store was written by a newer hiermem; it was left untouched. Upgrade the library."""


class ModelError(HiermemError):
    """A model call failed.

    ``charged`` says whether the provider charged for it; None means unknown. ``retry_after`` is the
    pause in seconds that the provider requested, or None. ``detail`` says what was wrong in words
    that hold no text and no key, so it is kept and shown; "" where only the kind can be.
    """

    charged: bool | None = None
    detail: str = ""
    kind: Literal["transient", "permanent", "overflow", "refused"] = "permanent"

    def __init__(
        self, message: str, *, charged: bool | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.charged = charged
        self.retry_after = retry_after


class TransientModelError(ModelError):
    """A timeout, a rate limit, a 5xx or a dropped connection: the same call may succeed later."""

    retryable = True
    kind = "transient"


class ModelTimeoutError(TransientModelError):
    """The model did not answer in time; it is not known whether it charged."""


class PermanentModelError(ModelError):
    """Authentication, a bad request, an unknown model: the same call will fail again."""


class ModelOverflowError(PermanentModelError):
    """The request does not fit the model's context window."""

    kind = "overflow"


class ModelRefusedError(PermanentModelError):
    """The model or its provider declined to answer."""

    kind = "refused"


class InvalidVectorError(PermanentModelError):
    """An embedder returned invalid vectors; none of them was kept.

    The number of vectors or their dimension is wrong, or a vector is not finite or all zeros.
    """


AnswerProblem: TypeAlias = Literal[
    "empty",
    "too_large",
    "too_deep",
    "not_json",
    "duplicate_key",
    "not_finite",
    "bad_text",
    "schema",
]


class InvalidAnswerError(ModelError):
    """A model's answer is not the requested JSON.

    ``problem`` is the kind of fault and ``where`` its place, such as ``entities.3.name``. The place
    consists of field names and positions, and of nothing that the model wrote.
    """

    def __init__(self, message: str, *, problem: AnswerProblem, where: str = "") -> None:
        super().__init__(message, charged=True)
        self.problem = problem
        self.where = where
