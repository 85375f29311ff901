"""A drawn graph has nothing in it that a name could have put there."""

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hiermem.convert.mermaid import to_mermaid
from hiermem.errors import UsageError
from hiermem.types.trivector import ENTITY_TYPES, Entity, EntityKey, Provenance, Relation, TriVector

PLACE = (Provenance(chunk="s:chunk:0", start=0, stop=2),)
HOSTILE = (
    '"] --> x["', "a\nend\nclick n0 call()", "%% comment", "<script>alert(1)</script>", "]]>",
    "`code`", "#quot;", "a;b", "&amp;", "\x00\x1b[31m", "\ud7ff\ue000\uffff", "{{x}}", "|x|",
)  # fmt: skip


def vector(names, links=(), types=ENTITY_TYPES):
    entities = tuple(
        Entity(type=types[n % len(types)], name=name, confidence=0.5, provenance=PLACE,
               description=name, aliases=(name + "!",))
        for n, name in enumerate(names)
    )  # fmt: skip
    keys = [EntityKey.model_construct(type=e.type, name=e.name) for e in entities]
    relations = tuple(
        Relation.model_construct(source=keys[a], relation=word, target=keys[b], weight=0.5,
                                 justification=word, provenance=PLACE)
        for a, word, b in links
    )  # fmt: skip
    return TriVector.model_construct(
        summary="", entities=entities, relations=relations, namespace=(), deltas=(), strategy=(),
        missing=(),
    )  # fmt: skip


LINE = re.compile(
    r'flowchart LR|    n\d+(\(\[|\[\[|\[/|\[|\()"[^"<>`|{}\[\]&\n]*"(\]\)|\]\]|/\]|\]|\))'
    r'|    n\d+ -->\|"[^"<>`|{}\[\]&\n]*"\| n\d+|    classDef \w+ [\w:#,]+|    class [n\d,]+ \w+'
    r"|    %% [\w, ]+"
)


def test_a_mermaid_chart_holds_the_entities_and_relations():
    drawn = to_mermaid(vector(["Ada", "SQLite", "alone"], [(0, "uses", 1)]))
    assert 'n0(["Ada"])' in drawn
    assert 'n0 -->|"uses"| n1' in drawn
    assert "alone" not in drawn
    assert "2 of 3 entities, 1 of 1 relations" in drawn
    assert "alone" in to_mermaid(vector(["Ada", "SQLite", "alone"]), alone=True)


@settings(max_examples=60, deadline=None)
@given(names=st.lists(st.text(min_size=1, max_size=80), min_size=1, max_size=6, unique=True))
@example(names=list(HOSTILE))
def test_no_name_can_end_a_label_or_add_a_line(names):
    links = [(n, name, (n + 1) % len(names)) for n, name in enumerate(names)]
    for line in to_mermaid(vector(names, links), alone=True).split("\n")[:-1]:
        assert LINE.fullmatch(line), line


def test_the_number_drawn_is_bounded():
    many = vector([f"e{n}" for n in range(100)], [(n, "r", n + 1) for n in range(99)])
    assert to_mermaid(many, most=10).count('("') + to_mermaid(many, most=10).count('["') <= 12
    with pytest.raises(UsageError):
        to_mermaid(many, most=0)


def drawn_of(vector, most):
    return re.findall(r"^    n\d+[(\[/]+\"(\w+)\"", to_mermaid(vector, most=most), re.MULTILINE)


#: The first ten are related to the last ten only: e0 to e20, e1 to e21, ...
FAR = vector([f"e{n}" for n in range(30)], [(n, "r", n + 20) for n in range(10)])
STAR = vector([f"e{n}" for n in range(9)], [(0, "r", 5), (1, "r", 6), (5, "r", 7)])


@pytest.mark.parametrize(
    ("graph", "most", "drawn"),
    [
        (FAR, 6, "e0 e1 e2 e20 e21 e22"),
        (FAR, 7, "e0 e1 e2 e20 e21 e22"),  # a seventh would stand alone
        (STAR, 3, "e0 e5 e7"),  # one with a neighbour in the picture takes the odd place
        (STAR, 5, "e0 e1 e5 e6 e7"),
        (vector(["a", "b", "c"]), 2, "a b"),
    ],
)
def test_as_many_are_drawn_as_were_asked_for(graph, most, drawn):
    """Entities whose neighbours are mentioned less must not leave places empty."""
    assert drawn_of(graph, most) == drawn.split()
