"""What the journal says of one run: its items, the tries for each, and how they ended.

A run whose heartbeat stopped without an end was interrupted. Every reader sees it so, and its
unfinished calls are unknown, not failed.

Decides what a request and an answer may take of a model's window, and which counts to believe.

An impossible count that a provider or an adapter reports is treated as no count, and replaced by
our own. It would otherwise stand in every journal and count against every cap: a negative count
gives back what was spent, one of another type makes the store's row unreadable, one that is too
large for the store ends the run that paid for it.

Decides how long to wait after a failure, or where nothing can be done for a while.

The pause doubles each time in a row, from a first to a longest one. For texts and sessions the
pairs below say which; others bring a pair of their own. Only the retries of one model call are not
decided here: they follow the provider's wish, and are spread at random (``calls.ask``).
A model that failed too often in a row is down, and is not asked for a while. A call that was not
answered in time is repeated with more patience: a slow server works on after its caller has gone,
and the same patience would wait behind the abandoned call and end as that did.

The claim of a run as a record's body, and how long a claim is believed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from hiermem.config import LONGEST_LEASE, BankPolicy, ExtractionOptions
from hiermem.errors import ConfigError
from hiermem.lazy import LazyModule
from hiermem.protocols import ChatMessage, Usage
from hiermem.types.brief import Brief
from hiermem.types.prices import add_costs

if TYPE_CHECKING:
    from hiermem.types import transaction
else:
    transaction = LazyModule("hiermem.types.transaction")


#: The share of a model's stated window that one request may take.
SAFE_SHARE: Final = 0.75
#: Tokens reserved for an answer: what providers allow by default, and what costs nothing locally.
REMOTE_ANSWER: Final = 4096
LOCAL_ANSWER: Final = 16_384
#: Tokens that a provider adds to each message of a request.
FRAME: Final = 4


def threshold(options: ExtractionOptions | BankPolicy, window: object) -> int | None:
    """Return the most tokens that one request may take: by the options, or by the model's window.

    None where neither is known. Of the window it is a share.

    Raises ConfigError where the window is not a whole number above 0, or the options ask for more
    than the model can take.
    """
    if window is not None and (
        isinstance(window, bool) or not isinstance(window, int) or window < 1
    ):
        raise ConfigError("the model's context_window must be a whole number above 0, or None")
    asked = options.safe_processing_tokens
    if asked is not None:
        if window is not None and asked > window:
            raise ConfigError(
                f"safe_processing_tokens is {asked}, but the model's window is {window}; give at "
                f"most that, or leave it out for {math.floor(SAFE_SHARE * window)}"
            )
        return asked
    if window is None:
        return None
    return max(1, math.floor(SAFE_SHARE * window))


def answer_tokens(
    options: ExtractionOptions | BankPolicy,
    *,
    window: int | None,
    live: bool,
    remote: int = REMOTE_ANSWER,
) -> int:
    """Return the tokens reserved for one answer: from the options, or by the model.

    A ``live`` model gets ``remote`` tokens by default, another one LOCAL_ANSWER; neither gets more
    than a quarter of the window in force. That is the model's window, or a smaller one of which the
    options' limit is the share that a request may take.
    """
    if options.output_tokens is not None:
        return options.output_tokens
    windows = [] if window is None else [window]
    if options.safe_processing_tokens is not None:
        windows.append(math.ceil(options.safe_processing_tokens / SAFE_SHARE))
    most = remote if live else LOCAL_ANSWER
    return max(256, min(most, min(windows) // 4)) if windows else most


def request_tokens(messages: Sequence[ChatMessage], count: Callable[[str], int]) -> int:
    """Return the tokens of a rendered request."""
    return sum(count(message.content) + FRAME for message in messages)


#: More tokens than any call takes; a sum of millions of such counts still fits a store's numbers.
MOST_TOKENS: Final = 1_000_000_000


def count_of(value: object) -> int | None:
    """Return a plausible count of tokens, or None.

    >>> count_of(12), count_of(-1), count_of(1.5), count_of(10**30)
    (12, None, None, None)
    """
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= MOST_TOKENS else None


def plausible_usage(usage: object) -> Usage:
    """Return the plausible figures of a usage; none where it is not a Usage."""
    if not isinstance(usage, Usage):
        return Usage()
    return Usage(
        input_tokens=count_of(usage.input_tokens),
        output_tokens=count_of(usage.output_tokens),
        cached_tokens=count_of(usage.cached_tokens),
        reasoning_tokens=count_of(usage.reasoning_tokens),
    )


def reported_model(value: object, *, asked: str) -> str:
    """Return the model that an answer names, where the name can be stored; otherwise ``asked``."""
    fit = isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable()
    return str(value) if fit else asked


#: The first and the longest pause, in seconds.
Pauses: TypeAlias = tuple[float, float]

#: A text that the model did not make, or for which only the stand-in serves.
TEXT: Final[Pauses] = (15.0, 3600.0)
#: A session whose vectors could not all be made.
VECTORS: Final[Pauses] = (60.0, 3600.0)
#: A session whose turn ended in an error.
TROUBLE: Final[Pauses] = (2.0, 300.0)
#: A cap of the session or the tenant: only time, or a raised cap, helps.
CAPPED: Final[Pauses] = (300.0, 300.0)
#: A session for which nothing could be done.
IDLE: Final[Pauses] = (1.0, 30.0)
#: A model that is down.
DOWN: Final[Pauses] = (15.0, 600.0)
#: Where a provider asks for a longer pause than this, in seconds, its model is down for that time.
#: A shorter pause is waited out.
LONGEST_HOLD: Final = 120.0
#: The longest pause, in seconds, that a provider is believed to ask for. A date far off or a wrong
#: number would otherwise stop all requests until the process ends.
LONGEST_BELIEVED: Final = 3_600.0


def back_off(failures: int, pauses: Pauses) -> float:
    """Return the pause after ``failures`` failures in a row, in seconds.

    >>> [back_off(failures, TROUBLE) for failures in (1, 2, 3, 99)]
    [2.0, 4.0, 8.0, 300.0]
    """
    first, longest = pauses
    return min(longest, first * 2.0 ** min(max(0, failures - 1), 30))


def down_for(failures: int) -> float:
    """Return the seconds for which a model is down, ``failures`` beyond those that make it so."""
    return back_off(failures + 1, DOWN)


#: How often a call that was not answered in time is repeated at once, with twice the patience.
REPEATS: Final = 1


def patience(timeouts: int) -> float:
    """Return by how much a call is given more time, after so many that were not answered in it."""
    return float(2 ** min(timeouts, REPEATS))


#: How long the offset between a memory's clock and its store's is believed.
COMPARED_AFTER: Final = timedelta(hours=1)

#: How long before its end a claim is believed at most.
MOST_BELIEVED: Final = timedelta(seconds=1.25 * LONGEST_LEASE)


class ClaimLostError(Exception):
    """Another run took the work over."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A run's claim; no other run does its work before ``until``.

    ``process`` is the mark of its process, "" if that is unknown; ``nonce`` tells each writing of
    the claim from others.
    """

    run_id: str
    until: datetime
    process: str = ""
    nonce: str = ""


def is_believed(until: datetime, *, now: datetime) -> bool:
    """Return whether a claim that is to end at ``until`` holds now.

    One that ends later than the longest lease would was written while a clock was ahead, and
    nobody waits for it. A quarter more is granted, since the clocks may differ by so much.
    """
    return now < until <= now + MOST_BELIEVED


def moved_too_far(moved: timedelta, lease: float) -> bool:
    """Return whether two clocks moved apart by more than a quarter of a lease, in seconds."""
    return abs(moved) > timedelta(seconds=lease) / 4


def write_claim(claim: Claim) -> str:
    """Return a claim as a record's body."""
    value = {"run": claim.run_id, "until": claim.until.isoformat()}
    return json.dumps(value | {"process": claim.process, "nonce": claim.nonce})


def read_claim(body: str) -> Claim | None:
    """Return the claim that a record holds; None where it holds none, or a time without a zone."""
    try:
        found = json.loads(body)
        until = datetime.fromisoformat(found["until"])
        claim = Claim(str(found["run"]), until, str(found["process"]), str(found["nonce"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return claim if until.tzinfo is not None else None


#: The state of one item: made, being made, failed, or unknown.
ItemState = Literal["ok", "running", "failed", "unknown"]


@dataclass(frozen=True, slots=True)
class RunItem(Brief):
    """One summary, chunk or batch that a run called a model for.

    ``attempts`` counts the calls; ``reasons`` says, in order, why each unsuccessful one failed. An
    answer that may be used is not among them, nor one that was taken after a further call.
    ``seconds`` is what they took together, ``cost`` what they cost, None without prices.
    """

    id: str
    session_id: str
    state: ItemState
    attempts: int
    reasons: tuple[str, ...]
    tokens_in: int
    tokens_out: int
    seconds: float
    model: str
    cost: float | None = None


@dataclass(frozen=True, slots=True)
class RunReport(Brief):
    """A journalled run with the items it called a model for; ``record`` holds the run as a whole.

    What was made without a call (copied verbatim, reused) is counted in ``record.detail`` only.
    """

    record: transaction.RunRecord
    items: tuple[RunItem, ...] = ()

    @property
    def id(self) -> str:
        """The run's id."""
        return self.record.id

    @property
    def kind(self) -> str:
        """The kind of run: update, extraction, erasure, …."""
        return self.record.kind

    @property
    def outcome(self) -> str:
        """How it ended; "running" while it lasts, "interrupted" where it was cut off."""
        return self.record.outcome

    @property
    def seconds(self) -> float | None:
        """How long it took; None while it lasts, and where its end is not known.

        It is never negative: a clock that was set back meanwhile makes it 0.
        """
        if self.record.ended_at is None:
            return None
        return max(0.0, (self.record.ended_at - self.record.started_at).total_seconds())

    @property
    def calls(self) -> int:
        """The number of journalled calls."""
        return sum(item.attempts for item in self.items)

    @property
    def tokens_in(self) -> int:
        """The input tokens of all calls."""
        return sum(item.tokens_in for item in self.items)

    @property
    def tokens_out(self) -> int:
        """The output tokens of all calls."""
        return sum(item.tokens_out for item in self.items)

    @property
    def cost(self) -> float | None:
        """What the calls cost, or None where none of them had a price."""
        return add_costs(*(item.cost for item in self.items))

    @property
    def latency(self) -> float | None:
        """The mean time of a call in seconds, or None without calls."""
        return sum(item.seconds for item in self.items) / self.calls if self.calls else None

    @property
    def queue(self) -> int | None:
        """How many summaries waited to be made when the run began, or None where not noted."""
        return _whole(self.record.detail.get("queue"))

    @property
    def dirty_share(self) -> float | None:
        """The share of the summaries that were dirty when the run began, or None."""
        value = self.record.detail.get("dirty_share")
        return float(value) if isinstance(value, (int, float)) else None


def journal(entry: transaction.RunRecord) -> transaction.Deciding[None]:
    """Journal a run of a session; if the session was erased meanwhile, its figures alone.

    Whatever the run wrote since under the session's name goes too.
    """
    if (yield entry.subject, transaction.NeedSession()) is not None:
        return transaction.Batch(None, runs=(entry,))
    kept = {
        name: value
        for name, value in entry.detail.items()
        if name in ("model", "alive_until") or isinstance(value, (int, float))
    }
    nameless = replace(entry, subject=transaction.NO_SESSION, detail=kept)
    return transaction.Batch(None, delete=(entry.subject,), runs=(nameless,))


def with_current_outcome(run: transaction.RunRecord, now: datetime) -> transaction.RunRecord:
    """Return the run as it reads now: without a heartbeat, a running one was interrupted."""
    if run.outcome != "running":
        return run
    until = run.detail.get("alive_until")
    try:
        over = not isinstance(until, str) or not is_believed(datetime.fromisoformat(until), now=now)
    except (ValueError, TypeError):
        over = True
    return replace(run, outcome="interrupted") if over else run


def cut_off(attempts: Iterable[transaction.Attempt], now: datetime) -> list[transaction.Attempt]:
    """Return the attempts that started and did not end, with the outcome to journal for them now.

    Whether such a call was answered, and charged, is unknown; its reservation stays spent.
    """
    return [
        replace(attempt, outcome="unknown", reason="cut_off", ended_at=now)
        for attempt in attempts
        if attempt.outcome == "started"
    ]


def report(
    run: transaction.RunRecord, attempts: Sequence[transaction.Attempt], now: datetime
) -> RunReport:
    """Return the run with its items: its calls by what they were made for, as they began."""
    record = with_current_outcome(run, now)
    grouped: dict[tuple[str, str], list[transaction.Attempt]] = {}
    for attempt in attempts:
        grouped.setdefault((attempt.session_id, attempt.node_id), []).append(attempt)
    alive = record.outcome == "running"
    items = tuple(_item(*place, calls, alive=alive) for place, calls in grouped.items())
    return RunReport(record, items)


def _item(
    session_id: str, node_id: str, calls: Sequence[transaction.Attempt], *, alive: bool
) -> RunItem:
    return RunItem(
        id=node_id,
        session_id=session_id,
        state=_state(calls, alive=alive),
        attempts=len(calls),
        reasons=tuple(call.reason or call.outcome for call in calls if call.outcome != "ok"),
        tokens_in=sum(call.tokens_in for call in calls),
        tokens_out=sum(call.tokens_out for call in calls),
        seconds=sum(_seconds(call) for call in calls),
        model=calls[-1].model,
        cost=add_costs(*(call.cost for call in calls)),
    )


def _state(calls: Sequence[transaction.Attempt], *, alive: bool) -> ItemState:
    last = calls[-1].outcome
    if last == "ok" or _took_earlier(calls):
        return "ok"
    if last == "started":
        return "running" if alive else "unknown"
    return "unknown" if last == "unknown" else "failed"


def _took_earlier(calls: Sequence[transaction.Attempt]) -> bool:
    """Return whether an answer was taken that was asked for again in vain.

    An answer with a reason may be used, and it is, where the next one is rejected or never comes.
    """
    rejected = 0
    for call in reversed(calls):
        if call.outcome == "ok":
            return bool(call.reason) and rejected <= 1
        if call.outcome == "started":
            return False
        rejected += call.outcome == "rejected"
    return False


def _seconds(call: transaction.Attempt) -> float:
    if call.ended_at is None or call.outcome == "unknown":
        return 0.0
    return max(0.0, (call.ended_at - call.started_at).total_seconds())


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
