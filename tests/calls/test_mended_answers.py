"""What can mean one thing only is mended; anything else is left for the schema to refuse."""

import json
from typing import Any, NamedTuple

import pytest

from hiermem.calls.answers import blank, parse
from hiermem.calls.failures import InvalidAnswerError
from hiermem.types.trivector import (
    MOST_ENTITIES,
    MOST_IN_LINE,
    MOST_IN_NAME,
    MOST_MENTIONS,
    Answer,
)

ENTITY = {"type": "person", "name": "Ana", "aliases": ["A."], "description": "chose it",
          "tags": ["dev"], "confidence": 0.9, "messages": [1, 2]}  # fmt: skip
OTHER = ENTITY | {"name": "Bea"}
RELATION = {"source": {"type": "person", "name": "Ana"}, "relation": "knows",
            "target": {"type": "person", "name": "Bea"}, "weight": 0.8,
            "justification": "she said so", "messages": [2]}  # fmt: skip
DELTA = {"kind": "task", "text": "Write it down", "open": True, "messages": [3]}
STRATEGY = {"kind": "decision", "text": "SQLite it is", "messages": [2]}


class Read(NamedTuple):
    answer: Answer
    dropped: int


def read(**fields: Any) -> Read:
    return Read(*parse(json.dumps({"summary": "s"} | fields)))


def entity(**fields: Any) -> Any:
    found = read(entities=[ENTITY | fields])
    assert found.dropped == 0
    return found.answer.entities[0]


@pytest.mark.parametrize("field", ["confidence", "tags", "aliases"])
def test_an_entity_without_confidence_or_tags_is_read(field: str) -> None:
    """Small models leave them out, and an answer in which every entity is sound is not refused."""
    unstated = 0.5 if field == "confidence" else ()
    assert getattr(entity(**{field: None}), field) == unstated
    bare = {name: value for name, value in ENTITY.items() if name != field}
    assert getattr(read(entities=[bare]).answer.entities[0], field) == unstated


def test_lists_of_an_item_are_cut_to_their_bound() -> None:
    """Too many aliases or messages cost those over the bound, and not the whole chunk."""
    found = entity(
        aliases=[f"a{n}" for n in range(30)], tags=["t"] * 30, messages=[*range(200, 0, -1)]
    )
    assert found.aliases == tuple(f"a{n}" for n in range(8))
    assert len(found.tags) == 8
    assert found.messages == (1, *range(202 - MOST_MENTIONS, 201)), "the first, and the newest"
    answer = read(deltas=[DELTA | {"messages": [*range(40)]}]).answer
    assert answer.deltas[0].messages == (0, *range(25, 40))
    assert len(read(features=[f"f{n}" for n in range(99)]).answer.features) == 32


def test_more_items_than_an_answer_may_have_are_cut_and_counted() -> None:
    found = read(entities=[ENTITY | {"name": f"n{n}"} for n in range(MOST_ENTITIES + 7)])
    assert len(found.answer.entities) == MOST_ENTITIES
    assert found.answer.entities[-1].name == f"n{MOST_ENTITIES - 1}"
    assert found.dropped == 7


def test_null_is_what_is_not_there() -> None:
    found = entity(aliases=None, description=None, tags=[None], messages=None)
    assert (found.aliases, found.description, found.tags, found.messages) == ((), "", (), ())
    assert read(deltas=[DELTA | {"open": None}]).answer.deltas[0].open
    empty = read(summary=None, features=None, entities=None, relations=None, deltas=None,
                 strategy=None)  # fmt: skip
    assert empty.answer.summary == ""
    assert empty.answer.entities == ()


def test_types_and_kinds_are_known_in_any_case() -> None:
    assert entity(type="PERSON").type == "person"
    assert entity(type=" Organization ").type == "organisation"
    answer = read(
        entities=[ENTITY, OTHER],
        relations=[RELATION | {"source": {"type": "Person", "name": "Ana"}}],
        deltas=[DELTA | {"kind": "Promise"}],
        strategy=[STRATEGY | {"kind": "MILESTONE"}],
    ).answer
    assert answer.relations[0].source.type == "person"
    assert (answer.deltas[0].kind, answer.strategy[0].kind) == ("promise", "milestone")


def test_one_where_a_list_is_due_is_a_list_of_one_and_numbers_are_read_as_shown() -> None:
    found = entity(aliases="Annie", tags="dev", messages=4)
    assert (found.aliases, found.tags, found.messages) == (("Annie",), ("dev",), (4,))
    assert entity(messages=["#12", "7", 3]).messages == (12, 7, 3)


def test_prose_that_is_too_long_is_cut_at_a_word() -> None:
    found = entity(description="word " * 200)
    assert len(found.description) <= MOST_IN_LINE
    assert found.description.endswith("word…")
    assert len(entity(description="x" * 2000).description) == MOST_IN_LINE
    assert len(read(summary="fact. " * 3000).answer.summary) <= 8000
    answer = read(deltas=[DELTA | {"text": "do it " * 200}]).answer
    assert len(answer.deltas[0].text) <= MOST_IN_LINE


@pytest.mark.parametrize("nothing", ["", "  ", "\u200b", None, "x" * (MOST_IN_NAME + 1)])
def test_an_item_that_names_nothing_is_dropped_and_counted(nothing: Any) -> None:
    """One unusable item must not cost the chunk; a name too long to be kept is no name."""
    found = read(entities=[ENTITY, ENTITY | {"name": nothing}])
    assert [each.name for each in found.answer.entities] == ["Ana"]
    assert found.dropped == 1
    end = {"type": "person", "name": nothing}
    for wrong in ({"relation": nothing}, {"source": end}, {"target": end}):
        found = read(relations=[RELATION, RELATION | wrong])
        assert (len(found.answer.relations), found.dropped) == (1, 1)


@pytest.mark.parametrize("nothing", ["", "  ", None])
def test_a_line_that_says_nothing_is_dropped_and_counted(nothing: Any) -> None:
    found = read(relations=[RELATION, RELATION | {"justification": nothing}],
                 deltas=[DELTA, DELTA | {"text": nothing}],
                 strategy=[STRATEGY, STRATEGY | {"text": nothing}])  # fmt: skip
    assert found.dropped == 3
    answer = found.answer
    assert len(answer.relations) == len(answer.deltas) == len(answer.strategy) == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"entities": [ENTITY, *[ENTITY | {"type": "thing"}] * 2]},
        {"entities": [ENTITY, OTHER, OTHER | {"type": 3}]},
        {"entities": [ENTITY, {"label": "Bea"}]},
        {"entities": [ENTITY | {"name": ""}]},
        {"entities": [ENTITY, *[ENTITY | {"name": " "}] * 2, *[ENTITY | {"name": None}] * 9]},
        {"entities": [ENTITY | {"messages": ["twelve"]}]},
        {"entities": [ENTITY | {"messages": [-1]}]},
        {"entities": [ENTITY | {"messages": True}]},
        {"entities": [ENTITY | {"messages": [True] * 99}]},
        {"entities": ENTITY},
        {"entities": ["Ana"]},
        {"relations": [RELATION | {"source": "Ana"}]},
        {"deltas": [DELTA | {"open": "yes"}]},
        {"features": [["auth"]]},
    ],
)
def test_what_could_mean_two_things_is_refused(fields: dict[str, Any]) -> None:
    """So is a list of which most says nothing: dropping it would pass off garbage as an answer."""
    with pytest.raises(InvalidAnswerError) as caught:
        read(**fields)
    assert caught.value.problem == "schema"


def test_an_unknown_type_is_the_widest_one_and_relations_follow() -> None:
    """Broken once: one "library" among forty entities cost the whole chunk, and a repair."""
    lib = ENTITY | {"type": "library", "name": "httpx"}
    uses = RELATION | {"target": {"type": "Library ", "name": "httpx"}}
    found = read(entities=[ENTITY, OTHER, lib], relations=[uses])
    assert [each.type for each in found.answer.entities] == ["person", "person", "concept"]
    assert found.answer.relations[0].target.type == "concept"
    assert found.dropped == 0


def test_a_text_that_shows_nothing_is_blank() -> None:
    assert blank("")
    assert blank(" \n\u200b\u2060")
    assert not blank(" .")
