"""Reads the JSON object in a model's text within bounds of size, depth and number of values.

Nothing is built before it is known to be small enough. A scan of the text, in one pass and without
memory of its own, finds its size, depth and number of values first; so reading costs at most a few
times the length of the text. The result is a value of the schema or an ``InvalidAnswerError``,
which never holds a word of the text. ``calls.lenient`` decides which departures of an
``Answer`` from its schema are mended. The engine decides about retries.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from hiermem.calls.lenient import mend
from hiermem.errors import InvalidAnswerError
from hiermem.text.reasoning import is_unclosed
from hiermem.types.trivector import Answer

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")

#: The longest answer that is read, in code points: four times a usual, full answer.
MAX_ANSWER: Final = 1_048_576
#: The deepest nesting; the schema itself has four levels.
MAX_DEPTH: Final = 64
#: A value (an object, a list, a member, an item) takes about 64 bytes in memory, a number in a list
#: about 36. With at most one value for every eight characters, or one number for every five, plus a
#: small free allowance, the values of a text take about eight times its memory. The field names
#: alone make real answers much sparser.
_PER_VALUE: Final = 8
_PER_NUMBER: Final = 5
_FREE: Final = 512 * _PER_VALUE
#: The most braces without an end that are skipped.
_UNCLOSED: Final = 16
#: More digits than any useful, exact number has.
_DIGITS: Final = 40

#: A whole string (an unclosed one reaches to the end), or one structural character; a comma before
#: a number is distinguished. The quantifiers are possessive, so no start is tried twice.
_MARK: Final = re.compile(
    r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|(?P<number>,(?=\s*+[-0-9]))|[\[\]{},]', re.DOTALL
)


class ParsedAnswer(NamedTuple):
    """The answer that was read, and how many of its items could not be used."""

    answer: Answer
    dropped: int


def parse(text: str) -> ParsedAnswer:
    """Read the last JSON object in a model's text that is an Answer.

    Raises InvalidAnswerError with what is wrong and where.
    """
    return read_object(text, _answer)


def _answer(value: dict[str, Any]) -> ParsedAnswer:
    dropped = mend(value)
    return ParsedAnswer(validated(value, Answer), dropped)


def read_object(text: str, read: Callable[[dict[str, Any]], T]) -> T:
    """Return what ``read`` makes of the last complete JSON object in a model's text that it takes.

    Text around the object (a fence, a byte order mark, a sentence, reasoning) is skipped, also if
    it has braces. Raises InvalidAnswerError with what is wrong and where, if no object fits: that
    of the last object that is JSON.
    """
    if len(text) > MAX_ANSWER:
        raise InvalidAnswerError(
            f"the answer has {len(text):,} characters; at most {MAX_ANSWER:,} are read",
            problem="too_large",
        )
    if not text or text.isspace():
        raise InvalidAnswerError("the answer is empty; give one JSON object", problem="empty")
    if "{" not in text:
        raise InvalidAnswerError(
            "the answer holds no JSON object; give the object and nothing else", problem="not_json"
        )
    if is_unclosed(text):
        raise InvalidAnswerError(
            "the answer is reasoning without an end; give one JSON object", problem="not_json"
        )
    unfit: InvalidAnswerError | None = None
    places = _objects(text)
    if any(text[a:b].strip() == "," for (_, a), (b, _) in pairwise(places)):
        raise InvalidAnswerError(
            "the answer is a list of objects; give one object", problem="not_json"
        )
    for start, stop in reversed(places):
        try:
            return read(_value(text[start:stop]))
        except InvalidAnswerError as error:
            if unfit is None or (unfit.problem == "not_json" != error.problem):
                unfit = error
    raise unfit or InvalidAnswerError("the answer's JSON object breaks off", problem="not_json")


def _objects(text: str) -> list[tuple[int, int]]:
    """Find the places of whatever has balanced braces and stands in no other braces.

    A brace that is never closed is skipped, as are at most ``_UNCLOSED`` of them: each takes a scan
    of the text. Raises InvalidAnswerError for what nests too deep or holds too many values.
    """
    found: list[tuple[int, int]] = []
    start, unclosed = text.find("{"), 0
    while start >= 0 and unclosed < _UNCLOSED:
        stop = _scan(text, start)
        if stop is None:
            unclosed += 1
        else:
            found.append((start, stop))
        start = text.find("{", stop or start + 1)
    return found


def _scan(text: str, start: int) -> int | None:
    """Find the end of the object at ``start``, None if it never ends, without building anything.

    Refuses an object that nests too deep or holds too many values.
    """
    left = _FREE + len(text) - start
    depth = 0
    for match in _MARK.finditer(text, start):
        mark = text[match.start()]
        if mark in "[{":
            depth += 1
            left -= _PER_VALUE
            if depth > MAX_DEPTH:
                raise InvalidAnswerError(
                    f"the answer nests deeper than {MAX_DEPTH} levels", problem="too_deep"
                )
        elif mark in "]}":
            depth -= 1
            if not depth:
                return match.end()
        elif mark == ",":
            left -= _PER_NUMBER if match["number"] else _PER_VALUE
        if left < 0:
            raise InvalidAnswerError(
                "the answer holds more values than its length can be about", problem="too_large"
            )
    return None


def _value(text: str) -> dict[str, Any]:
    """Build the object of a scanned text, whose texts can be stored."""
    value: dict[str, Any] = _built(text)
    if _has_nul(value):
        raise InvalidAnswerError(
            "a text of the answer holds a NUL, which cannot be stored", problem="bad_text"
        )
    return value


def _built(text: str) -> Any:
    try:
        return json.loads(
            text,
            object_pairs_hook=_members,
            parse_float=_figure,
            parse_int=_integer,
            parse_constant=_constant,
        )
    except json.JSONDecodeError as error:
        wrong = InvalidAnswerError(
            f"the answer is not JSON: its object goes wrong at line {error.lineno}, column "
            f"{error.colno}",
            problem="not_json",
        )
    except RecursionError:
        wrong = InvalidAnswerError("the answer nests too deep", problem="too_deep")
    # Raised outside of the handler, so that the decoder's error, which carries the text, is not its
    # context.
    raise wrong


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise InvalidAnswerError(
            "an object of the answer has one key twice; give each key once", problem="duplicate_key"
        )
    return members


def _figure(digits: str) -> float:
    value = float(digits) if len(digits) <= _DIGITS else math.inf
    return value if math.isfinite(value) else _constant(digits)


def _integer(digits: str) -> int:
    return int(digits) if len(digits) <= _DIGITS else _constant(digits)


def _constant(_: str) -> NoReturn:
    raise InvalidAnswerError(
        "a number of the answer is not finite, or has too many digits; JSON has no NaN and no "
        "Infinity",
        problem="not_finite",
    )


def validated(value: dict[str, Any], model: type[M]) -> M:
    """Validate an object against its schema. Raises InvalidAnswerError."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    # An unknown field's name is the model's own word, so it is not repeated.
    unknown = first["type"] == "extra_forbidden"
    path = first["loc"][:-1] if unknown else first["loc"]
    where = ".".join(map(str, path)) or "the object"
    what = "a field that the schema does not have" if unknown else first["msg"]
    raise InvalidAnswerError(
        f"the answer does not fit the schema at {where}: {what}",
        problem="bad_text" if first["type"] == "string_unicode" else "schema",
        where=where,
    )


def _has_nul(value: Any) -> bool:
    if isinstance(value, str):
        return "\x00" in value
    if isinstance(value, dict):
        return any(map(_has_nul, value.values()))
    return isinstance(value, list) and any(map(_has_nul, value))
