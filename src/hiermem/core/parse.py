"""Decides whether a model's text is the answer that was asked for, and reads it within bounds.

The one rule: nothing is built that was not found small enough first. A look over the text, in one
pass and without memory of its own, knows its size, its depth and how many values it holds before
any of them is made; so a text costs at most a few times its own length, whatever it is. What
comes out is an ``Answer`` or an ``InvalidAnswerError``, which never holds a word of the text.
Retrying is the engine's business.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

from pydantic import ValidationError

from hiermem.errors import InvalidAnswerError
from hiermem.trivector import Answer

__all__ = ["MAX_ANSWER", "MAX_DEPTH", "parse"]

#: The longest answer that is looked at, in code points: four times what the schema's usual fill is.
MAX_ANSWER: Final = 1_048_576
#: The deepest nesting; the schema itself has four levels.
MAX_DEPTH: Final = 64
#: A value (an object, a list, a member, an item) takes some 64 bytes once it is made. With at most
#: one for every eight characters, beside a small stock, the values of a text take about eight times
#: its memory. Names of fields alone make real answers much sparser.
_CHARS_PER_VALUE: Final = 8
_FREE_VALUES: Final = 512
#: More digits than a finite, exact figure of any use has.
_DIGITS: Final = 40

#: A whole string (an unclosed one reaches to the end), or one mark of structure. Possessive, so
#: that no start is tried twice.
_MARK: Final = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[\]{},]', re.DOTALL)
_FENCED: Final = re.compile(r"```(?:json|JSON)?[ \t]*\n(?P<inside>.*)\n[ \t]*```", re.DOTALL)


def parse(text: str) -> Answer:
    """Read a model's text as an Answer.

    White space around it and one fence of three back-quotes are let pass, being what models add in
    spite of themselves; nothing else is. Raises InvalidAnswerError with what is wrong and where.
    """
    if len(text) > MAX_ANSWER:
        raise InvalidAnswerError(
            f"the answer has {len(text):,} characters; at most {MAX_ANSWER:,} are read",
            problem="too_large",
        )
    text = text.strip()
    if text.startswith("```") and (fenced := _FENCED.fullmatch(text)):
        text = fenced["inside"].strip()
    if not text:
        raise InvalidAnswerError("the answer is empty; give one JSON object", problem="empty")
    if text[0] != "{":
        raise InvalidAnswerError(
            "the answer does not begin with a JSON object; give the object and nothing else",
            problem="not_json",
        )
    _look_over(text)
    return _shaped(_values(text))


def _look_over(text: str) -> None:
    """Refuse a text that nests too deep or holds too many values, before anything is made of it."""
    left = _FREE_VALUES + len(text) // _CHARS_PER_VALUE
    depth = 0
    for match in _MARK.finditer(text):
        mark = text[match.start()]
        if mark in "[{":
            depth += 1
            left -= 1
            if depth > MAX_DEPTH:
                raise InvalidAnswerError(
                    f"the answer nests deeper than {MAX_DEPTH} levels", problem="too_deep"
                )
        elif mark in "]}":
            depth -= 1
        elif mark == ",":
            left -= 1
        if left < 0:
            raise InvalidAnswerError(
                "the answer holds more values than its length can be about", problem="too_large"
            )


def _values(text: str) -> Any:
    """Make the values of a text that was looked over."""
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
            f"the answer is not JSON: it breaks off or goes wrong at line {error.lineno}, column "
            f"{error.colno}",
            problem="not_json",
        )
    except RecursionError:
        wrong = InvalidAnswerError("the answer nests too deep", problem="too_deep")
    # Raised out here, so that the decoder's error, which carries the text, is no context of it.
    raise wrong


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise InvalidAnswerError(
            "an object of the answer has one key twice; give each key once",
            problem="duplicate_key",
        )
    return members


def _figure(digits: str) -> float:
    value = float(digits) if len(digits) <= _DIGITS else math.inf
    if not math.isfinite(value):
        raise InvalidAnswerError(
            "a number of the answer is not finite or has too many digits", problem="not_finite"
        )
    return value


def _integer(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise InvalidAnswerError(
            "a number of the answer is not finite or has too many digits", problem="not_finite"
        )
    return int(digits)


def _constant(_name: str) -> Any:
    raise InvalidAnswerError(
        "a number of the answer is not finite; JSON has no NaN and no Infinity",
        problem="not_finite",
    )


def _shaped(value: Any) -> Answer:
    """Hold the values to the schema."""
    if _has_nul(value):
        raise InvalidAnswerError(
            "a text of the answer holds a NUL, which cannot be stored", problem="bad_text"
        )
    try:
        return Answer.model_validate(value)
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
