"""The tenant's graph: what is kept by name, and how sessions are joined when it is asked."""

from hiermem.extraction import plan as graph
from hiermem.types.trivector import Entity, EntityKey, Provenance, Relation, TriVector


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
        key: graph.read_name_record(session, body)
        for key, body in graph.graph_records(vector).items()
    }


def test_sessions_join_into_one_entity_with_all_places():
    """A document stands under each name in its normal form; an alias is told and has none."""
    database = entity("\uff33QLite", session="one", aliases=("DB",), confidence=0.4)
    one = kept("one", [database, entity("Sqlite", "file", session="one")])
    assert set(one) == {"sqlite"}
    two = kept("two", [entity("sqlite", session="two", description="the database")])
    (found,) = graph.entities_named([one["sqlite"], two["sqlite"]], "technology")
    assert (found.sessions, found.entity.aliases) == (("one", "two"), ("DB", "sqlite"))
    assert (found.description, found.entity.confidence) == ("the database", 0.5)
    assert {p.chunk for p in found.entity.provenance} == {"one:chunk:0", "two:chunk:0"}


def test_a_homograph_stays_two_and_the_one_of_more_messages_comes_first():
    """However they lie; a place as wide as a chunk counts once."""
    long = entity("Mercury", "person", provenance=(place("s", 0, 5),))
    wide = entity("Mercury", "concept", provenance=(place("s", 0, 1), place("s", 3, 4)))
    whole = entity("Mercury", "place", provenance=(place("s", 0, 500),))
    found = kept("s", [whole, wide, long])["mercury"]
    assert [e.type for e in graph.entities_named([found], None)] == ["person", "concept", "place"]
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


def test_damaged_records_say_nothing():
    bad = '{"entities": [1], "relations": []}'
    part = graph.write_result(TriVector(summary=""), basis()).replace("summary", "sum")
    for body in ("", "[]", "{}", "[" * 9999, bad, "nul", part):
        assert graph.read_name_record("s", body) == ("s", (), ())
        assert graph.read_result(body) is None
        assert graph.replaces(basis(whole=False), body)
    vector = TriVector(summary="x")
    assert graph.read_result(graph.write_result(vector, basis())) == vector


def basis(messages=7, said="h", tokens=100, *, whole=True, degraded=False):
    return graph.basis_of(
        messages=messages, input_hash=said, tokens=tokens, whole=whole, degraded=degraded
    )


def test_a_result_never_gives_way_to_a_worse_one_of_the_same_messages():
    """Nor to one of fewer messages; to any of more, or of messages that say something else."""

    def replaced(standing, by):
        return graph.replaces(by, graph.write_result(TriVector(summary=""), standing))

    part, less = basis(whole=False), basis(whole=False, tokens=60)
    degraded = basis(degraded=True)
    ranks = [less, part, degraded, basis()]
    for at, standing in enumerate(ranks):
        assert [replaced(standing, by) for by in ranks] == [n >= at for n in range(len(ranks))]
    assert replaced(basis(), basis(9, "more", whole=False))
    assert replaced(basis(), basis(7, "edited", whole=False))
    assert not replaced(basis(9, "more", whole=False), basis())
    # Slicing weighs a message differently; that makes a whole result no better and no worse.
    assert replaced(basis(tokens=110), basis(tokens=100))
