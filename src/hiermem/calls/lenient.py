"""Mends the departures of an answer from its schema that can mean one thing only.

Models write ``null`` for a missing value, "Person" for "person", one alias where a list is due,
thirty message numbers where sixteen are allowed, "library" for "technology". Asking again for such
an answer costs as much as the answer did, and the second answer may be worse. So lists are cut to
their limit, prose is cut at a word, an item that names nothing is dropped and counted, and an
unknown type becomes "concept", the widest one, unless most types of the answer are unknown.

Nothing is guessed. What could mean two things stays as it is, for the schema to refuse; so does a
list of which more than half could not be used. The answer is changed in place, so this takes no
memory to speak of.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, get_args

from hiermem.types import trivector as schema

#: A message's number as the record shows it.
_NUMBER: Final = re.compile(r"#?([0-9]{1,15})")
_TYPES: Final = {name: name for name in schema.ENTITY_TYPES} | {"organization": "organisation"}
_WIDEST: Final = "concept"
_DELTAS: Final = {name: name for name in get_args(schema.DeltaKind)}
_STRATEGIES: Final = {name: name for name in get_args(schema.StrategyKind)}


def blank(text: str) -> bool:
    r"""Return whether a text shows nothing.

    >>> blank(" \u200b")
    True
    """
    return not any(char.isprintable() and not char.isspace() for char in text)


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
