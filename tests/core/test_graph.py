"""The tenant's graph: what is kept by name, and how sessions are joined when it is asked."""

from hiermem.core import graph
from hiermem.core.graph import Named
from hiermem.trivector import Entity, EntityKey, Provenance, Relation, TriVector


def place(session, start, stop):
    return Provenance(chunk=f"{session}:chunk:0", start=start, stop=stop)


def entity(name, type_="technology", session="s", aliases=(), at=0, **fields):
    fields = {"confidence": 0.5, "provenance": (place(session, at, at + 1),)} | fields
    return Entity(type=type_, name=name, aliases=tuple(aliases), **fields)


def relation(source, word, target, session="s", weight=0.5):
    ends = [EntityKey(type="technology", name=name) for name in (source, target)]
    return Relation(source=ends[0], relation=word, target=ends[1], weight=weight,
                    justification=f"in {session}", provenance=(place(session, 0, 1),))  # fmt: skip


def kept(session, entities, relations=()):
    vector = TriVector(summary="", entities=tuple(entities), relations=tuple(relations))
    return {
        key: graph.read_named(session, body) for key, body in graph.graph_records(vector).items()
    }


def test_a_document_stands_under_each_name_in_its_normal_form():
    found = kept("s", [entity("\uff33QLite"), entity("Sqlite", "file"), entity("Ada", "person")])
    assert set(found) == {"sqlite", "ada"}
    assert [e.type for e in found["sqlite"].entities] == ["technology", "file"]


def test_an_alias_leads_to_its_entity():
    found = kept("s", [entity("PostgreSQL", aliases=("Postgres", "PG"))])
    assert found["postgres"] == Named("s", see=("postgresql",))
    assert found["pg"].see == ("postgresql",)


def test_sessions_join_into_one_entity_with_all_places():
    one = kept("one", [entity("SQLite", session="one", description="db", confidence=0.4)])
    two = kept("two", [entity("sqlite", session="two", description="the database")])
    (found,) = graph.entities_named([one["sqlite"], two["sqlite"]], None)
    assert found.sessions == ("one", "two")
    assert (found.description, found.entity.confidence) == ("the database", 0.5)
    assert {p.chunk for p in found.entity.provenance} == {"one:chunk:0", "two:chunk:0"}


def test_a_homograph_stays_two_and_the_more_mentioned_comes_first():
    more = entity("Mercury", "person", provenance=(place("s", 0, 1), place("s", 2, 3)))
    found = kept("s", [entity("Mercury", "concept"), more])["mercury"]
    assert [e.type for e in graph.entities_named([found], None)] == ["person", "concept"]
    assert [e.type for e in graph.entities_named([found], "concept")] == ["concept"]


def test_a_relation_is_seen_from_both_ends_and_joined_over_sessions():
    parts = [
        kept(name, [entity("A", session=name), entity("B", session=name)],
             [relation("A", "uses", "B", name, weight)])
        for name, weight in (("one", 0.4), ("two", 0.9))
    ]  # fmt: skip
    (out,) = graph.neighbours_of([part["a"] for part in parts], None)
    (back,) = graph.neighbours_of([part["b"] for part in parts], None)
    assert (out.name, out.outgoing, out.weight, out.sessions) == ("B", True, 0.9, ("one", "two"))
    assert (back.name, back.outgoing) == ("A", False)
    assert {p.chunk for p in out.relation.provenance} == {"one:chunk:0", "two:chunk:0"}
    assert graph.neighbours_of([part["a"] for part in parts], "file") == ()


def test_mentions_come_by_session_and_place():
    one = kept("one", [entity("A", session="one", at=4)])["a"]
    two = kept("two", [entity("A", session="two", at=1)])["a"]
    found = graph.mentions_of([two, one], None)
    assert [(m.session_id, m.start, m.stop) for m in found] == [("one", 4, 5), ("two", 1, 2)]


def test_damaged_records_say_nothing():
    bad = '{"entities": [1], "relations": [], "see": []}'
    for body in ("", "[]", "{}", "[" * 9999, bad, "nul"):
        assert graph.read_named("s", body) == Named("s")
        assert graph.read_kept_vector(body) is None
        assert graph.kept_messages(body) == -1
    vector = TriVector(summary="x")
    assert graph.read_kept_vector(graph.write_kept_vector(vector, 7)) == vector
    assert graph.kept_messages(graph.write_kept_vector(vector, 7)) == 7
