"""The laws of the reduce: without them two runs over one session would give two graphs."""

import random
import unicodedata
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling import drawn

from hiermem.extraction.chunks import Chunk, chunk_id
from hiermem.extraction.reduce import (
    LIMITS,
    Graph,
    finish,
    ground,
    normalise,
    reduce,
)
from hiermem.types import Span
from hiermem.types.trivector import (
    Answer,
    AnswerDelta,
    AnswerEnd,
    AnswerEntity,
    AnswerRelation,
    AnswerStrategy,
    DeltaKind,
    EntityType,
    StrategyKind,
)

SIZE = 4

names = st.sampled_from(
    ["SQLite", "sqlite", "\uff33QLite", "Ana", "ANA", "Café", unicodedata.normalize("NFD", "Café"),
     "Mercury", "app.py", "x", "\u200b"]
)  # fmt: skip
types = st.sampled_from(["technology", "person", "concept", "file"])
texts = st.sampled_from(["Ship it.", "ship it", "Is it safe?", "Which port?", "Write the docs"])
words = st.sampled_from(["uses", "Depends On", "depends_on", "x", " "])
shares = st.sampled_from([0.0, 0.25, 0.5, 1.0])


@st.composite
def answers(draw: st.DrawFn, first: int = 0) -> Answer:
    index = st.lists(st.integers(first - 2, first + SIZE + 2).filter(lambda n: n >= 0), max_size=4)
    messages = index.map(tuple)
    entity = st.builds(
        AnswerEntity, type=types, name=names, aliases=st.lists(names, max_size=2).map(tuple),
        description=st.sampled_from(["", "one", "two", "longer one", "longer 22"]),
        tags=st.lists(st.sampled_from(["a", "A", "b"]), max_size=2).map(tuple),
        confidence=shares, messages=messages,
    )  # fmt: skip
    end = st.builds(AnswerEnd, type=types, name=names)
    relation = st.builds(
        AnswerRelation, source=end, relation=words, target=end, weight=shares,
        justification=st.sampled_from(["because", "so it says", "see there"]), messages=messages,
    )  # fmt: skip
    delta = st.builds(
        AnswerDelta, kind=st.sampled_from(get_args(DeltaKind)), text=texts, open=st.booleans(),
        messages=messages,
    )  # fmt: skip
    line = st.builds(
        AnswerStrategy, kind=st.sampled_from(get_args(StrategyKind)), text=texts, messages=messages
    )
    return draw(
        st.builds(
            Answer, summary=st.sampled_from(["", "s", "t"]),
            features=st.lists(st.sampled_from(["a.b", "c"]), max_size=2).map(tuple),
            entities=st.lists(entity, max_size=5).map(tuple),
            relations=st.lists(relation, max_size=5).map(tuple),
            deltas=st.lists(delta, max_size=3).map(tuple),
            strategy=st.lists(line, max_size=3).map(tuple),
        )
    )  # fmt: skip


def chunk(number: int) -> Chunk:
    span = Span(number * SIZE, (number + 1) * SIZE)
    return Chunk(chunk_id("s", number), number, span, (span,), 1, SIZE, 10, False, f"h{number}")


@st.composite
def graphs(draw: st.DrawFn, least: int = 1, most: int = 5) -> list[Graph]:
    count = draw(st.integers(least, most))
    return [
        ground(draw(answers(first=n * SIZE)), chunk(n), dropped=draw(st.integers(0, 2)))
        for n in range(count)
    ]


#: A drawn graph costs more than what is asked of it, and eight tests draw them.
SOME = drawn(40)


@SOME
@given(graphs(), st.randoms(use_true_random=False))
def test_the_order_in_which_chunks_arrive_changes_nothing(
    parts: list[Graph], shuffler: random.Random
) -> None:
    mixed = list(parts)
    shuffler.shuffle(mixed)
    assert reduce(mixed) == reduce(parts)


@SOME
@given(graphs())
def test_a_graph_merged_with_itself_or_with_a_part_of_itself_stays_as_it_is(
    parts: list[Graph],
) -> None:
    whole = reduce(parts)
    assert reduce([whole]) == whole
    assert reduce([whole, whole]) == whole
    assert reduce([*parts, *parts]) == whole
    assert reduce([parts[-1], whole]) == whole


@SOME
@given(graphs(least=3, most=6), st.data())
def test_neighbours_may_be_merged_in_any_brackets(parts: list[Graph], data: st.DataObject) -> None:
    whole = reduce(parts)
    row = list(parts)
    while len(row) > 1:
        at = data.draw(st.integers(0, len(row) - 2))
        row[at : at + 2] = [reduce(row[at : at + 2])]
    assert row[0] == whole


@SOME
@given(graphs())
def test_a_graph_comes_back_from_its_json(parts: list[Graph]) -> None:
    whole = reduce(parts)
    assert Graph.model_validate_json(whole.model_dump_json()) == whole


@SOME
@given(graphs())
def test_one_node_for_each_type_and_name_with_every_provenance(parts: list[Graph]) -> None:
    whole = reduce(parts)
    keys = [(each.type, normalise(each.name)) for each in whole.entities]
    assert len(keys) == len(set(keys))
    for each in whole.entities:
        met = {
            place
            for part in parts
            for other in part.entities
            if (other.type, normalise(other.name)) == (each.type, normalise(each.name))
            for place in other.provenance
        }
        assert set(each.provenance) == met
        same = [
            other for part in parts for other in part.entities
            if (other.type, normalise(other.name)) == (each.type, normalise(each.name))
        ]  # fmt: skip
        assert each.confidence == max(other.confidence for other in same)
        assert len(each.description) == max(len(other.description) for other in same)
        assert each.name == same[0].name
        assert {tag for other in same for tag in other.tags} == set(each.tags)


@SOME
@given(graphs())
def test_every_provenance_lies_in_its_chunk(parts: list[Graph]) -> None:
    result = finish(reduce(parts), summary="")
    for item in (*result.entities, *result.relations, *result.deltas, *result.strategy):
        assert item.provenance
        for place in item.provenance:
            number = int(place.chunk.rpartition(":")[2])
            assert number * SIZE <= place.start < place.stop <= (number + 1) * SIZE


@SOME
@given(graphs())
def test_both_ends_of_every_relation_exist_and_the_others_are_counted(parts: list[Graph]) -> None:
    whole = reduce(parts)
    result = finish(whole, summary="")
    known = {each.key for each in result.entities}
    assert all(each.source in known and each.target in known for each in result.relations)
    assert all(each.source != each.target for each in result.relations)
    names_known = {(e.type, normalise(e.name)) for e in whole.entities}
    sure_to_dangle = sum(
        (r.source.type, normalise(r.source.name)) not in names_known
        or (r.target.type, normalise(r.target.name)) not in names_known
        for r in whole.relations
    )
    assert result.stats.dangling == sure_to_dangle
    lost = result.stats.dangling + result.stats.loops
    assert len(result.relations) <= len(whole.relations) - lost


@SOME
@given(graphs(), st.integers(1, 3))
def test_a_result_keeps_to_its_limits_and_counts_what_it_leaves_out(
    parts: list[Graph], most: int
) -> None:
    limits = dict.fromkeys(LIMITS, most)
    whole = reduce(parts)
    result = finish(whole, summary="", limits=limits)
    for items in (
        result.entities, result.relations, result.deltas, result.strategy, result.namespace
    ):  # fmt: skip
        assert len(items) <= most
    for entity in result.entities:
        assert max(map(len, (entity.aliases, entity.tags, entity.provenance))) <= most
    full = finish(whole, summary="")
    kept = sum(map(len, (result.entities, result.relations, result.deltas, result.strategy)))
    all_of_it = sum(map(len, (full.entities, full.relations, full.deltas, full.strategy)))
    assert result.stats.capped == all_of_it - kept


def one(number: int, **fields: object) -> Graph:
    return ground(Answer(summary="s", **fields), chunk(number))


def entity(kind: EntityType, name: str, **fields: object) -> AnswerEntity:
    return AnswerEntity(**({"type": kind, "name": name, "confidence": 0.5} | fields))


@pytest.mark.parametrize(
    "other", ["SQLITE", "\uff53qlite", " sqlite ", "SQLi\N{LATIN SMALL LETTER T}e"]
)
def test_spellings_of_one_name_are_one_entity_and_stay_as_aliases(other: str) -> None:
    whole = reduce(
        [one(0, entities=(entity("technology", "SQLite"),)),
         one(1, entities=(entity("technology", other),))]
    )  # fmt: skip
    [found] = whole.entities
    assert found.name == "SQLite"
    assert [place.chunk for place in found.provenance] == ["s:chunk:0", "s:chunk:1"]
    assert finish(whole, summary="").stats.merged == 1


def test_composed_and_decomposed_spellings_are_one() -> None:
    composed, apart = "Café Ångström", unicodedata.normalize("NFD", "Café Ångström")
    whole = reduce(
        [one(0, entities=(entity("place", composed),)), one(1, entities=(entity("place", apart),))]
    )
    assert [(e.name, e.aliases) for e in whole.entities] == [(composed, ())]


def test_a_name_of_two_types_stays_two_and_relations_know_which_is_meant() -> None:
    planet, metal = (
        AnswerEnd(type="place", name="mercury"),
        AnswerEnd(type="concept", name="MERCURY"),
    )
    result = finish(
        reduce(
            [
                one(0, entities=(entity("place", "Mercury"), entity("concept", "Mercury"))),
                one(1, relations=(
                    AnswerRelation(source=planet, relation="named like", target=metal, weight=0.5,
                                   justification="same name"),
                )),
            ]
        ),
        summary="",
    )  # fmt: skip
    assert len(result.entities) == 2
    [relation] = result.relations
    assert (relation.source.type, relation.target.type) == ("place", "concept")


def test_a_later_chunk_closes_an_open_end_and_an_earlier_one_does_not() -> None:
    opened = one(0, deltas=(AnswerDelta(kind="task", text="Write the docs."),))
    closed = one(1, deltas=(AnswerDelta(kind="task", text="write the docs", open=False),))
    [delta] = finish(reduce([opened, closed]), summary="").deltas
    assert not delta.open
    assert delta.closed_by is not None
    assert delta.closed_by.chunk == "s:chunk:1"
    first = one(0, deltas=(AnswerDelta(kind="task", text="write the docs", open=False),))
    again = one(1, deltas=(AnswerDelta(kind="task", text="Write the docs."),))
    [reopened] = finish(reduce([first, again]), summary="").deltas
    assert reopened.open
    assert reopened.closed_by is None


def test_a_later_statement_in_other_words_closes_an_open_end_and_is_not_listed_beside_it() -> None:
    opened = one(0, deltas=(
        AnswerDelta(kind="unresolved", text="The login page still redirects twice"),
        AnswerDelta(kind="question", text="Which database do we use in production?"),
    ))  # fmt: skip
    done = one(1, deltas=(
        AnswerDelta(kind="task", text="Fixed the login page, it no longer redirects twice",
                    open=False),
    ))  # fmt: skip
    result = finish(reduce([opened, done]), summary="")
    assert [(d.kind, d.open) for d in result.deltas] == [("unresolved", False), ("question", True)]
    backwards = finish(reduce([one(0, deltas=done.deltas and (
        AnswerDelta(kind="task", text="Fixed the login page, it no longer redirects twice",
                    open=False),)), one(1, deltas=(
        AnswerDelta(kind="unresolved", text="The login page still redirects twice"),))]),
        summary="")  # fmt: skip
    assert [d.open for d in backwards.deltas] == [True]
    assert backwards.stats.idle == 1, "what settled nothing is counted, and not listed"


def test_what_is_closed_and_was_never_open_is_left_out_and_counted() -> None:
    """Broken once: open ends were listed beside every "done" of the session that settled none."""

    def closed(text: str, *messages: int) -> AnswerDelta:
        return AnswerDelta(kind="task", text=text, open=False, messages=messages)

    parts = [
        one(0, deltas=(
            closed("asked and done in one chunk", 0, 3), closed("asked, then done", 1, 2),
            closed("only done", 2), closed("said of no message"),
            AnswerDelta(kind="task", text="Done later", messages=(1,)),
        )),
        one(1, deltas=(closed("Done later.", 6),)),
    ]  # fmt: skip
    found = finish(reduce(parts), summary="")
    assert [(d.text, d.open) for d in found.deltas] == [
        ("asked and done in one chunk", False), ("Done later", False), ("asked, then done", False),
    ]  # fmt: skip
    assert found.stats.idle == 2


def test_ties_go_to_the_earlier_chunk() -> None:
    whole = reduce(
        [one(1, entities=(entity("person", "Ana", description="two"),)),
         one(0, entities=(entity("person", "Ana", description="one"),))]
    )  # fmt: skip
    assert whole.entities[0].description == "one"


def test_numbers_of_messages_that_the_chunk_does_not_hold_are_passed_over() -> None:
    found = one(1, entities=(entity("person", "Ana", messages=(0, 4, 5, 7, 99)),))
    assert [(p.start, p.stop) for p in found.entities[0].provenance] == [(4, 6), (7, 8)]
    nowhere = one(1, entities=(entity("person", "Ana", messages=(99,)),))
    assert [(p.start, p.stop) for p in nowhere.entities[0].provenance] == [(4, 8)]


@given(st.text(max_size=20))
def test_a_normal_form_is_final(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)


def test_what_names_nothing_is_left_out_and_counted_once() -> None:
    """A blank word of a relation would be stored as one; however often the chunk is merged."""
    ada = AnswerEnd(type="person", name="Ada")
    bob = AnswerEnd(type="person", name="Bob")
    link = AnswerRelation(source=ada, relation="knows", target=bob, weight=0.5, justification="x")
    blanks = [{"relation": " "}, {"relation": "\u200b"}, {"justification": "\n"},
              {"source": AnswerEnd(type="person", name=" ")},
              {"target": AnswerEnd(type="person", name="\t")}]  # fmt: skip
    answer = Answer(
        summary="s",
        entities=(entity("person", "Ada"), entity("person", "Bob"), entity("person", " ")),
        relations=(link, *(link.model_copy(update=blank) for blank in blanks)),
        deltas=(AnswerDelta(kind="task", text="..."),),
        strategy=(AnswerStrategy(kind="decision", text="\u200b"),),
    )
    first = ground(answer, chunk(0), dropped=2)
    result = finish(reduce([first, first, one(1)]), summary="")
    assert [(r.source.name, r.relation, r.target.name) for r in result.relations] == [
        ("Ada", "knows", "Bob")
    ]
    assert (result.deltas, result.strategy) == ((), ())
    assert result.stats.dropped == 8 + 2
    assert result.stats.dangling == 0
    assert ground(Answer(summary="s"), chunk(0)).dropped == ()


def test_entities_that_more_messages_speak_of_come_first() -> None:
    """A run of messages counts for all of them; no numbers at all count once a chunk."""
    found = finish(
        one(0, entities=(
            entity("person", "nowhere"),
            entity("person", "apart", messages=(0, 2)),
            entity("person", "run", messages=(0, 1, 2)),
        )),
        summary="",
    )  # fmt: skip
    assert [each.name for each in found.entities] == ["run", "apart", "nowhere"]


def test_of_too_many_lines_the_newest_stay_and_of_open_ends_those_that_are_open() -> None:
    parts = [
        one(n, strategy=(AnswerStrategy(kind="decision", text=f"d{n}"),),
            deltas=(AnswerDelta(kind="task", text=f"t{n}", open=n != 4),))
        for n in range(5)
    ]  # fmt: skip
    found = finish(reduce(parts), summary="", limits={**LIMITS, "strategy": 2, "deltas": 2})
    assert [each.text for each in found.strategy] == ["d3", "d4"]
    assert [each.text for each in found.deltas] == ["t2", "t3"]
    assert (found.stats.capped, found.stats.idle) == (5, 1)
