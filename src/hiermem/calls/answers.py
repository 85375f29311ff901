"""Decides how a model's answer is read, what of it is mended, and what follows from it.

*Reading.* The JSON object in a text is read within bounds of size, depth and number of values. A
scan, in one pass and without memory of its own, finds all three before anything is built; so
reading costs at most a few times the length of the text. The result is a value of the schema or an
``InvalidAnswerError``, which never holds a word of the text.

*Mending.* Models write ``null`` for a missing value, "Person" for "person", one alias where a list
is due, thirty message numbers where sixteen are allowed, "library" for "technology". Asking again
costs as much as the answer did, and the second answer may be worse. So lists are cut to their
limit, prose is cut at a word, an item that names nothing is dropped and counted, and an unknown
type becomes "concept", the widest one, unless most types of the answer are unknown. Nothing is
guessed: what could mean two things stays as it is, for the schema to refuse, and so does a list if
more than half of it is unusable. The answer is mended in place.

*The verdict.* Each task judges its answers by its own rules, and says in one of three words what
follows: take it (``Accepted``), ask again (``Retry``), give up (``Rejected``). ``calls.call`` holds
the loop.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import Any, Final, Generic, NoReturn, TypeAlias, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from hiermem.calls.failures import Cause, InvalidAnswerError
from hiermem.protocols import LLMRequest, LLMResponse
from hiermem.text.reasoning import answer_parts, without_reasoning
from hiermem.types import trivector as schema
from hiermem.types.trivector import Answer

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

#: A message's number as the record shows it.
_NUMBER: Final = re.compile(r"#?([0-9]{1,15})")
_TYPES: Final = {name: name for name in schema.ENTITY_TYPES} | {"organization": "organisation"}
_WIDEST: Final = "concept"
_DELTAS: Final = {name: name for name in get_args(schema.DeltaKind)}
_STRATEGIES: Final = {name: name for name in get_args(schema.StrategyKind)}


def parse(text: str) -> tuple[Answer, int]:
    """Read the last JSON object in a model's text that is an Answer.

    Returns also how many of its items could not be used. Raises InvalidAnswerError with what is
    wrong and where.
    """
    return read_object(text, _answer)


def _answer(value: dict[str, Any]) -> tuple[Answer, int]:
    dropped = mend(value)
    return validated(value, Answer), dropped


T = TypeVar("T")


def read_object(text: str, read: Callable[[dict[str, Any]], T]) -> T:
    """Return what ``read`` makes of the last complete JSON object in a model's text that it takes.

    Text around the object (a fence, a byte order mark, a sentence) is skipped, also if it has
    braces, and so is reasoning with whatever objects it holds. Raises InvalidAnswerError with what
    is wrong and where, if no object fits: that of the last object that is JSON.
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
    try:
        return _last_object(text, read)
    except InvalidAnswerError:
        # A brace or a quote in the reasoning may have hidden where the object begins.
        answer = without_reasoning(text)
        if answer == text.strip():
            raise
    return _last_object(answer, read)


def blank(text: str) -> bool:
    r"""Return whether a text shows nothing.

    >>> blank(" \u200b")
    True
    """
    return not any(char.isprintable() and not char.isspace() for char in text)


def _last_object(text: str, read: Callable[[dict[str, Any]], T]) -> T:
    """Return what ``read`` makes of the last object outside of reasoning that it takes."""
    objects = _objects(text)
    # The texts in an object may speak of marks of reasoning.
    places, is_unclosed = answer_parts(_masked(text, objects))
    objects = [
        (start, stop)
        for start, stop in objects
        if any(begin <= start and stop <= end for begin, end in places)
    ]
    if is_unclosed and not objects:
        raise InvalidAnswerError(
            "the answer is reasoning without an end; give one JSON object", problem="not_json"
        )
    if any(text[a:b].strip() == "," for (_, a), (b, _) in pairwise(objects)):
        raise InvalidAnswerError(
            "the answer is a list of objects; give one object", problem="not_json"
        )
    unfit: InvalidAnswerError | None = None
    for start, stop in reversed(objects):
        try:
            return read(_value(text[start:stop]))
        except InvalidAnswerError as error:
            if unfit is None or (unfit.problem == "not_json" != error.problem):
                unfit = error
    raise unfit or InvalidAnswerError("the JSON object breaks off; complete it", problem="not_json")


def _masked(text: str, objects: list[tuple[int, int]]) -> str:
    """Return ``text`` with figures in place of its objects."""
    ends = [0, *(stop for _, stop in objects)]
    begins = [*(start for start, _ in objects), len(text)]
    between = (text[end:begin] for end, begin in zip(ends, begins, strict=True))
    filled = ("0" * (stop - start) for start, stop in objects)
    return "".join(map("".join, zip_longest(between, filled, fillvalue="")))


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
                    f"the answer nests deeper than {MAX_DEPTH} levels; flatten it",
                    problem="too_deep",
                )
        elif mark in "]}":
            depth -= 1
            if not depth:
                return match.end()
        elif mark == ",":
            left -= _PER_NUMBER if match["number"] else _PER_VALUE
        if left < 0:
            raise InvalidAnswerError(
                "the answer has too many values for its length; shorten it", problem="too_large"
            )
    return None


def _value(text: str) -> dict[str, Any]:
    """Build the object of a scanned text, whose texts can be stored."""
    value: dict[str, Any] = _built(text)
    if _has_nul(value):
        raise InvalidAnswerError(
            "a text holds a NUL, which cannot be stored; remove it", problem="bad_text"
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
            (
                f"the answer is no JSON at line {error.lineno}, column {error.colno}; mend the "
                "object"
            ),
            problem="not_json",
        )
    except RecursionError:
        wrong = InvalidAnswerError("the answer nests too deep; flatten it", problem="too_deep")
    # Raised outside of the handler, so that the decoder's error, which carries the text, is not its
    # context.
    raise wrong


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise InvalidAnswerError(
            "an object has one key twice; give each key once", problem="duplicate_key"
        )
    return members


def _figure(digits: str) -> float:
    value = float(digits) if len(digits) <= _DIGITS else math.inf
    return value if math.isfinite(value) else _constant(digits)


def _integer(digits: str) -> int:
    return int(digits) if len(digits) <= _DIGITS else _constant(digits)


def _constant(_: str) -> NoReturn:
    raise InvalidAnswerError(
        "a number is not finite or too long; JSON has no NaN or Infinity",
        problem="not_finite",
    )


M = TypeVar("M", bound=BaseModel)


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


def mend(answer: dict[str, Any]) -> int:
    """Mend what can mean one thing only, in place; return the number of dropped items."""
    if answer.get("summary", "") is None:
        answer["summary"] = ""
    _prose(answer, "summary", schema.MOST_IN_SUMMARY)
    _words(answer, "features", schema.MOST_FEATURES, longest=schema.MOST_IN_TAG)
    _types(answer)
    return sum(
        _items(answer, name, most, usable=usable)
        for name, most, usable in (
            ("entities", schema.MOST_ENTITIES, _entity),
            ("relations", schema.MOST_RELATIONS, _relation),
            ("deltas", schema.MOST_DELTAS, _delta),
            ("strategy", schema.MOST_STRATEGY, _strategy),
        )
    )


def _types(answer: dict[str, Any]) -> None:
    """Read types in any case; replace a type that the schema does not have by the widest one.

    Where more than half of the entities have an unknown type, all stay as they are, and the schema
    refuses the answer. Relations get the same replacement, so that an entity and the relations that
    refer to it still agree.
    """
    entities, relations = (
        [each for each in items if isinstance(each, dict)] if isinstance(items, list) else []
        for items in (answer.get("entities"), answer.get("relations"))
    )
    ends = [
        end
        for each in relations
        for name in ("source", "target")
        if isinstance(end := each.get(name), dict)
    ]
    for each in (*entities, *ends):
        _choice(each, "type", _TYPES)
    unknown = [each for each in entities if _has_unknown_type(each)]
    if 2 * len(unknown) <= len(entities):
        for each in (*unknown, *filter(_has_unknown_type, ends)):
            each["type"] = _WIDEST


def _has_unknown_type(item: dict[str, Any]) -> bool:
    """Return whether an item's type is a word that the schema does not have."""
    value = item.get("type")
    return (
        isinstance(value, str)
        and value not in schema.ENTITY_TYPES
        and not _useless(value, schema.MOST_IN_TAG)
    )


def _items(
    answer: dict[str, Any], name: str, most: int, *, usable: Callable[[dict[str, Any]], bool]
) -> int:
    """Keep the first ``most`` usable items of a list; return how many were dropped."""
    items = _optional_field(answer, name)
    if not isinstance(items, list):
        return 0
    usable_items = [each for each in items if not isinstance(each, dict) or usable(each)]
    if 2 * len(usable_items) < len(items):
        # Too little is usable: the schema refuses the list, and the answer is asked for again.
        return 0
    answer[name] = usable_items[:most]
    return len(items) - len(answer[name])


def _entity(item: dict[str, Any]) -> bool:
    _words(item, "aliases", schema.MOST_ALIASES, longest=schema.MOST_IN_NAME)
    _words(item, "tags", schema.MOST_TAGS, longest=schema.MOST_IN_TAG)
    _optional_field(item, "description")
    _optional_field(item, "confidence")
    _prose(item, "description", schema.MOST_IN_LINE)
    _messages(item, schema.MOST_MENTIONS)
    return _names(item, "name", schema.MOST_IN_NAME)


def _relation(item: dict[str, Any]) -> bool:
    _prose(item, "justification", schema.MOST_IN_LINE)
    _messages(item)
    ends = [end for name in ("source", "target") if isinstance(end := item.get(name), dict)]
    return (
        all(_names(end, "name", schema.MOST_IN_NAME) for end in ends)
        and _names(item, "relation", schema.MOST_IN_TAG)
        and _names(item, "justification", schema.MOST_IN_LINE)
    )


def _delta(item: dict[str, Any]) -> bool:
    _optional_field(item, "open")
    return _statement(item, _DELTAS)


def _strategy(item: dict[str, Any]) -> bool:
    return _statement(item, _STRATEGIES)


def _statement(item: dict[str, Any], kinds: Mapping[str, str]) -> bool:
    _choice(item, "kind", kinds)
    _prose(item, "text", schema.MOST_IN_LINE)
    _messages(item)
    return _names(item, "text", schema.MOST_IN_LINE)


def _names(item: dict[str, Any], field: str, longest: int) -> bool:
    """Return whether a field names anything; a missing field is left to the schema."""
    value = item.get(field, "x")
    return not (value is None or (isinstance(value, str) and _useless(value, longest)))


def _useless(text: str, longest: int) -> bool:
    return len(text) > longest or blank(text)


def _optional_field(item: dict[str, Any], field: str) -> Any:
    """Return an optional field; ``null`` is the same as leaving it out."""
    if item.get(field, ...) is None:
        del item[field]
    return item.get(field)


def _choice(item: dict[str, Any], field: str, known: Mapping[str, str]) -> None:
    value = item.get(field)
    if isinstance(value, str) and len(value) <= schema.MOST_IN_TAG:
        item[field] = known.get(value.strip().casefold(), value)


def _prose(item: dict[str, Any], field: str, most: int) -> None:
    """Cut a text that is too long, at a word where there is one."""
    value = item.get(field)
    if isinstance(value, str) and len(value) > most:
        at = value.rfind(" ", most // 2, most - 1)
        item[field] = value[: at if at > 0 else most - 1].rstrip(" ,;:") + "…"


def _words(item: dict[str, Any], field: str, most: int, *, longest: int) -> None:
    value = _optional_field(item, field)
    if isinstance(value, str):
        value = [value]
    if isinstance(value, list):
        item[field] = [
            each
            for each in value
            if each is not None and not (isinstance(each, str) and _useless(each, longest))
        ][:most]


def _messages(item: dict[str, Any], most: int = schema.MOST_MESSAGES) -> None:
    """Read numbers as the record shows them; of too many, the first and the newest others stay."""
    value = _optional_field(item, "messages")
    if isinstance(value, (str, int)) and not isinstance(value, bool):
        value = [value]
    if not isinstance(value, list):
        return
    numbers = [_number(each) for each in value if each is not None]
    if len(numbers) > most and all(type(each) is int for each in numbers):
        numbers = sorted(set(numbers))
        numbers = [*numbers[:1], *numbers[1:][-(most - 1) :]]
    item["messages"] = numbers


def _number(value: Any) -> Any:
    found = _NUMBER.fullmatch(value.strip()) if isinstance(value, str) else None
    return int(found[1]) if found else value


@dataclass(frozen=True, slots=True)
class Accepted(Generic[T]):
    """The answer is taken; ``value`` is what it gives."""

    value: T
    model: str = ""


@dataclass(frozen=True, slots=True)
class Retry(Generic[T]):
    """The model is asked once more, with ``request``; ``judge`` judges the next answer.

    ``reason`` says what was wrong and holds no text of the answer.
    """

    request: LLMRequest
    reason: str
    judge: Callable[[LLMResponse], Accepted[T] | Retry[T] | Rejected]


@dataclass(frozen=True, slots=True)
class Rejected:
    """No answer can be used, and the model is not asked again.

    ``reason`` is what the journal of calls says of the answer; ``cause`` and ``detail`` are what
    the failure is reported as.
    """

    reason: str
    cause: Cause = "provider"
    detail: str = ""


Verdict: TypeAlias = Accepted[T] | Retry[T] | Rejected
Judge: TypeAlias = Callable[[LLMResponse], Verdict[T]]
