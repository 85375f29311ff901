"""Decides what a failed call means, at any provider: may it be retried, when, and is it charged.

The provider's text is examined and never repeated, because it may quote the prompt or the key. Our
errors hold the status, a known word, the provider's request id, and what would be right; nothing
else. No SDK is known here: an adapter passes the bare facts (status, words, headers, the names of
the exceptions). ``charged`` is False only if nothing can have been generated: the provider refused
the request before it began, or never received it. For every other failure it is unknown.

*Pauses* double from a first to a longest one with each failure in a row. For texts and sessions the
pairs below say which; other callers bring a pair of their own. Only the retries of one model call
follow the provider's wish, and are spread at random (``calls.retry``). A model that failed too
often in a row is down, and is not asked for a while.

*A fault in a model's own code*, a function or an adapter that is broken, is shown as far as that is
safe. An exception's text may hold the prompt, an answer or a key. So it is shown only if Python
itself words such errors; of any other text, what stands as a literal in the code that raised it.
Nothing that is shown stands in the request or looks like a key. The places in the code hold no data
and are always shown.
"""

from __future__ import annotations

import math
import re
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final, Literal, TypeAlias

from hiermem import errors
from hiermem.errors import HiermemError, ModelError, ModelErrorKind
from hiermem.protocols import LLMResponse

#: Statuses after which the same call may succeed.
_RETRYABLE: Final = frozenset({408, 409, 424, 425, 429, 499})
#: The statuses, of those and of the 5xx ones, which mean that generation did not begin.
_NOT_BEGUN: Final = frozenset({409, 425, 429, 529})
#: The 5xx statuses that mean the server never can, rather than not this time.
_NEVER: Final = frozenset({501, 505})
#: The statuses with which providers say that a request is too large.
_TOO_LARGE_AT: Final = frozenset({400, 413, 422, 500})
_REFUSED_AT: Final = frozenset({400, 403, 422, 451})
_FIELD_AT: Final = frozenset({400, 422})

#: The status that an error's word stands for, where the answer has no status of its own.
_STATUS_OF: Final[Mapping[str, int]] = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "api_error": 500,
    "server_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
_NO_CREDIT: Final = frozenset(
    {"insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "billing_error"}
)
_OVERFLOW_WORDS: Final = frozenset(
    {
        "context_length_exceeded",
        "contextwindowexceedederror",
        "exceed_context_size_error",
        "request_too_large",
        "string_above_max_length",
    }
)
_REFUSED_WORDS: Final = frozenset(
    {
        "content_filter",
        "content_policy_violation",
        "contentpolicyviolationerror",
        "invalid_prompt",
        "moderation",
        "responsibleaipolicyviolation",
    }
)
_OVERFLOW: Final = re.compile(
    r"(?:maximum|available|model'?s?) context|context (?:length|window|size|limit)"
    r"|(?:prompt|input|request) (?:is|was) too (?:long|large)|too many (?:input )?tokens"
    r"|input token count\b.{0,40}\bexceeds|tokens`? must (?:be <=|have less than)"
    r"|reduce the length of (?:the|your) (?:messages|prompt|input)|request too large",
    re.IGNORECASE,
)
_REFUSED: Final = re.compile(
    r"content (?:management|filtering|usage) polic|content polic|safety system|flagged (?:as|for)"
    r"|violat\w+ (?:our|the) (?:usage )?polic",
    re.IGNORECASE,
)
#: A field that a server does not accept at all, as opposed to one with a wrong value.
_NOT_TAKEN: Final = re.compile(
    r"unsupported|not (?:be )?(?:support|permitt|allow|recogni|implement)\w*"
    r"|does(?:n'?t| not) support|not available|deprecated|unknown|unrecogni[sz]ed|unexpected"
    r"|extra (?:inputs|fields)|(?:may|can) only be (?:set to )?\d|instead\b",
    re.IGNORECASE,
)

#: Exceptions of the transport, by the names of their classes, and what they mean. The first match
#: counts.
_TRANSPORT: Final[tuple[tuple[frozenset[str], ModelErrorKind, bool | None, str], ...]] = (
    (
        frozenset({"SSLCertVerificationError", "CertificateError"}),
        "permanent",
        False,
        "the server's certificate is not trusted; check base_url and the client's certificates",
    ),
    (
        frozenset({"UnsupportedProtocol", "InvalidURL", "LocalProtocolError", "TooManyRedirects"}),
        "permanent",
        False,
        "the request could not be written; check base_url and api_key for stray characters",
    ),
    (
        frozenset({"ConnectTimeout", "PoolTimeout"}),
        "transient",
        False,
        "no connection within the time allowed",
    ),
    (
        frozenset({"ConnectionRefusedError"}),
        "transient",
        False,
        "connection refused; check that the server runs at this address",
    ),
    (
        frozenset({"ConnectError", "ProxyError", "gaierror"}),
        "transient",
        False,
        "no connection to the server",
    ),
    (
        frozenset({"TimeoutException", "APITimeoutError", "TimeoutError"}),
        "timeout",
        None,
        "no answer within the time allowed; raise the timeout, or lower the concurrency",
    ),
    (
        frozenset({"JSONDecodeError", "UnicodeDecodeError", "APIResponseValidationError"}),
        "transient",
        None,
        "the answer is not JSON",
    ),
    (
        frozenset({"TransportError", "RequestError", "APIConnectionError", "OSError"}),
        "transient",
        None,
        "the connection broke before the answer was whole",
    ),
)


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
    """A model's answer is not the requested JSON. It ends in the run that asked.

    ``problem`` is the kind of fault and ``where`` its place, such as ``entities.3.name``. The place
    consists of field names and positions, and of nothing that the model wrote.
    """

    def __init__(self, message: str, *, problem: AnswerProblem, where: str = "") -> None:
        super().__init__(message, kind="invalid", charged=True)
        self.problem = problem
        self.where = where


@dataclass(frozen=True, slots=True)
class CallFailure:
    """What a failed call means. ``what`` says it in our own words, with what would be right.

    ``retry_after`` is in seconds. ``status``, ``code`` and ``request_id`` help to look the call up
    at the provider. ``message`` and ``param``, the field that the error names in addition to its
    message, are the provider's words: adapters adapt later requests by them, and show them nowhere.
    """

    kind: ModelErrorKind
    what: str
    charged: bool | None
    retry_after: float | None = None
    status: int | None = None
    code: str = ""
    request_id: str = ""
    message: str = field(default="", repr=False)
    param: object = field(default=None, repr=False)


def of_answer(
    status: int | None,
    *,
    words: Iterable[object] = (),
    raised: str = "",
    message: str = "",
    param: object = None,
    headers: Mapping[str, str] | None = None,
    now: datetime | None = None,
) -> CallFailure:
    """Return what a provider's error means.

    ``words`` are its code and type, ``raised`` is the exception class that an SDK made of it,
    ``message`` its text and ``param`` the field that it names; the names in ``headers`` are lower
    case. ``now`` is the start for a Retry-After that names a time, where the answer has no date.
    ``status`` is None where an error came inside an answer that had begun well: then its words
    stand for a status, and what was generated may have been charged.
    """
    lowered = headers or {}
    known = [word.lower() for word in words if isinstance(word, str)]
    begun = status is None
    if status is None:
        status = next((_STATUS_OF[word] for word in known if word in _STATUS_OF), 500)
    wait = retry_after(lowered, now)
    found = replace(
        _judge(status, frozenset({*known, raised.lower()}), message, waits=wait is not None),
        status=None if begun else status,
        code=next(filter(None, map(_safe_word, known)), ""),
        request_id=_request_id(lowered),
        message=message,
        param=param,
    )
    if found.kind == "transient":
        found = replace(found, retry_after=wait)
    return replace(found, charged=None) if begun and found.charged is False else found


def _judge(status: int, words: frozenset[str], message: str, *, waits: bool) -> CallFailure:
    """Distinguish the kinds of failure, from the clearest sign to the status alone."""
    plain = _from_words(status, words, message)
    if plain is not None:
        return plain
    if status == 408:
        return CallFailure("timeout", "the server gave up waiting", charged=None)
    if status in _RETRYABLE or (status >= 500 and status not in _NEVER):
        refused = status in _NOT_BEGUN or (status == 503 and waits)
        what = "too many requests" if status == 429 else "the server cannot answer now"
        return CallFailure("transient", what, charged=False if refused else None)
    what = {
        401: "the key is not accepted; check api_key",
        403: "the key may not use this model or address",
        404: "the model or the address is unknown; check model and base_url",
        405: "the address takes no such request; check base_url",
    }.get(status, "the request is not accepted")
    return CallFailure("permanent", what, charged=False)


def _from_words(status: int, words: frozenset[str], message: str) -> CallFailure | None:
    """Return what the provider's words alone make clear: too large, declined, no credit."""
    what = None
    kind: ModelErrorKind = "overflow"
    if status == 413 or (
        status in _TOO_LARGE_AT and (words & _OVERFLOW_WORDS or _OVERFLOW.search(message))
    ):
        what = "the request does not fit the model; give its context_window"
    elif status == 429 and "request too large" in message.lower():
        # No wait makes a request fit that exceeds the tokens of a whole minute.
        what = (
            "one request is over the account's tokens a minute; make windows smaller, or give a "
            "smaller context_window"
        )
    elif status == 451 or (
        status in _REFUSED_AT and (words & _REFUSED_WORDS or _REFUSED.search(message))
    ):
        kind, what = "refused", "the provider declined the request"
    elif status == 402 or words & _NO_CREDIT:
        kind, what = "permanent", "the account has no credit left, or may spend no more"
    return None if what is None else CallFailure(kind, what, charged=False)


def of_transport(names: Iterable[str]) -> CallFailure | None:
    """Return what it means that a call was cut off, by the class names of the exceptions.

    Pass the names along the whole chain of causes. None where they say nothing of a connection.
    """
    raised = frozenset(names)
    for signs, kind, charged, what in _TRANSPORT:
        if raised & signs:
            return CallFailure(kind, what, charged)
    return None


def refused_field(
    failure: CallFailure, fields: Iterable[str], *, at_all: bool = True
) -> str | None:
    """Return the one of ``fields`` because of which a request was refused, or None.

    With ``at_all`` only a field that the server does not accept is meant, not one with a wrong
    value (too large, say): leaving that out would hide the mistake.
    """
    message, param = failure.message, failure.param
    if failure.status not in _FIELD_AT or (at_all and not _NOT_TAKEN.search(message)):
        return None
    named = param.split(".")[0] if isinstance(param, str) else ""
    for name in fields:
        if named == name or (not named and re.search(rf"\b{re.escape(name)}\b", message)):
            return name
    return None


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Return the seconds that ``retry-after-ms`` or ``Retry-After`` asks to wait, or None.

    A time is counted from the answer's own ``Date``, so that a wrong clock does not matter.

    >>> retry_after({"retry-after": "1.5"})
    1.5
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    message = headers.get("retry-after")
    seconds = _number(message)
    if seconds is not None:
        return seconds
    until, since = _moment(message), _moment(headers.get("date")) or now
    if until is None or since is None:
        return None
    return max(0.0, (until - since).total_seconds())


def to_error(failure: CallFailure, *, model: str) -> errors.ModelError:
    """Return the error for a failure. ``model`` names the model or embedder."""
    details = ", ".join(
        part
        for part in (
            f"HTTP {failure.status}" if failure.status is not None else "",
            failure.code,
            f"request {failure.request_id}" if failure.request_id else "",
        )
        if part
    )
    what = failure.what + (f" ({details})" if details else "")
    return errors.ModelError(
        f"{model}: {what}",
        kind=failure.kind,
        charged=failure.charged,
        retry_after=failure.retry_after if failure.kind == "transient" else None,
        detail=what,
    )


def _number(message: str | None) -> float | None:
    """Read a number that is 0 or more."""
    try:
        value = float(message) if message else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _moment(message: str | None) -> datetime | None:
    """Read an HTTP date."""
    if not message:
        return None
    from email.utils import parsedate_to_datetime

    try:
        found = parsedate_to_datetime(message)
    except (ValueError, OverflowError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _safe_word(word: str) -> str:
    """Return a provider's word where it cannot be a secret; keys have digits."""
    return word if re.fullmatch(r"[a-z][a-z_]{2,39}", word) else ""


def _request_id(headers: Mapping[str, str]) -> str:
    """Return the request id that an answer names, where it looks like one."""
    value = headers.get("x-request-id") or headers.get("request-id") or ""
    return value if re.fullmatch(r"(?!sk-)[A-Za-z0-9][A-Za-z0-9_:.-]{3,79}", value) else ""


def is_attempt(error: errors.ModelError) -> bool:
    """Return whether a failure says something of the request, and not only of the provider.

    It does where the provider declined the request, and where the call may have been charged for.
    A call that is not answered in time may be charged for too, but says nothing by itself.
    """
    return error.kind == "refused" or (error.charged is not False and error.kind != "timeout")


Cause: TypeAlias = Literal["overflow", "truncated", "schema", "timeout", "provider", "oversized"]


def finish_cause(response: LLMResponse) -> tuple[Cause, str] | None:
    """Return what the way an answer ended means; None where it ended by itself.

    An answer that hit its length limit is never repaired: the missing part was not written.
    """
    reason = response.finish_reason
    if reason == "stop":
        return None
    return ("truncated" if reason == "length" else "provider", f"finish_{reason}")


def cause_of(error: errors.ModelError) -> tuple[Cause, str]:
    """Return what a model's error means. Its text stays out: it may hold the prompt, or a key."""
    if isinstance(error, InvalidAnswerError):
        return "schema", f"{error.problem} {error.where}".strip()
    if error.kind in ("overflow", "timeout"):
        return error.kind, shown(error)
    return "provider", shown(error)


def shown(error: errors.ModelError) -> str:
    """Return what is kept and shown of a model's error: its class, kind and ``detail``."""
    name = errors.name_of(error)
    return f"{name}: {error.detail}" if error.detail else name


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
#: A model that is down, with each failure beyond those that make it so.
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


#: The errors whose texts Python writes, out of names in the code and of types.
_WORDED: Final = (
    ArithmeticError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    NotImplementedError,
    RecursionError,
    TypeError,
)
_MOST: Final = 200
#: Of a longer text, only the beginning is compared with the code's literals.
_READ: Final = 4_000
#: Shorter literals of the code, such as a comma, say nothing.
_LITERAL: Final = 4
#: So many characters in a row that stand in the request too are content.
_RUN: Final = 12
#: What may be a key: long, of letters with digits or dashes.
_KEY: Final = re.compile(r"(?=[\w.-]*[\d-])[\w.-]{12,}")
_QUOTED: Final = re.compile(r"'([^']+)'|\"([^\"]+)\"")
#: The most places that are shown, the innermost last.
_PLACES: Final = 8
_FOLDERS: Final = re.compile(r".*[/\\]")
_OURS: Final = __file__.rpartition("calls")[0]


def described(error: BaseException, texts: Iterable[str]) -> str:
    """Return the kind of ``error``, its text where that is safe to show, and its innermost place.

    ``texts`` are those of the request.
    """
    said, request = type(error).__name__, "\n".join(texts)
    own = isinstance(error, HiermemError) and not isinstance(error, ModelError)
    whole = _text_of(error)
    known = whole if own or isinstance(error, _WORDED) else ""
    for text in (known, _literals_of(error, whole)):
        if _is_safe(text, request, is_looked_up=isinstance(error, LookupError)):
            said += f": {text}"
            break
    found = places(error)
    return f"{said} ({found[-1]})" if found else said


def places(error: BaseException) -> list[str]:
    """Return where in the code ``error`` was raised, outermost first, without hiermem's own code.

    Where all of it is hiermem's, the call itself was wrong, and that code is named.
    """
    found = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    theirs = [each for each in found if not each[0].co_filename.startswith(_OURS)]
    return [
        f"{_FOLDERS.sub('', code.co_filename)}:{line} in {code.co_name}"
        for code, line in (theirs or found)[-_PLACES:]
    ]


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - it runs code of the error's class
        return ""


def _literals_of(error: BaseException, text: str) -> str:
    """Return what of ``text`` stands as a literal in the code that raised ``error``.

    Whatever was put between the literals is replaced by "…"; "" means that no literal was found.
    """
    codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    literals = [
        each
        for each in (codes[-1].co_consts if codes else ())
        if isinstance(each, str) and len(each.strip()) >= _LITERAL
    ]
    if not literals:
        return ""
    longest_first = sorted(literals, key=len, reverse=True)
    parts = re.split(f"({'|'.join(map(re.escape, longest_first))})", text[:_READ])
    if len(parts) == 1:
        return ""
    return "".join(part if place % 2 else "…" if part else "" for place, part in enumerate(parts))


def _is_safe(text: str, request: str, *, is_looked_up: bool) -> bool:
    if not text or len(text) > _MOST or not text.isprintable() or _KEY.search(text):
        return False
    if is_looked_up:
        # The text is what was looked up, which may be data.
        quoted = ["".join(found) for found in _QUOTED.findall(text)]
        if any(each in request for each in quoted):
            return False
    runs = {text[at : at + _RUN] for at in range(max(1, len(text) - _RUN + 1))}
    return not any(run in request for run in runs)
