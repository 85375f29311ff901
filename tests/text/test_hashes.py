"""What a hash covers decides what is made twice: every part counts, and none run together."""

from hypothesis import given
from hypothesis import strategies as st

from hiermem.text.measure import VERBATIM, input_hash, output_hash, strategy_hash

STRATEGY = {
    "template": "t@1#a",
    "style": "detailed",
    "lengths": ["tokens", 0.5],
    "temperature": 0.3,
    "model": "m",
    "counter": "c",
}


def test_every_part_of_a_strategy_changes_its_hash():
    whole = strategy_hash(**STRATEGY)
    others = {
        strategy_hash(**(STRATEGY | {name: value}))
        for name, value in (
            ("template", "t@2#a"),
            ("style", "concise"),
            ("lengths", ["tokens", 0.4]),
            ("temperature", 0.4),
            ("model", "n"),
            ("counter", "d"),
        )
    }
    assert len(others) == 6
    assert whole not in others
    assert whole != VERBATIM


@given(st.lists(st.text(), max_size=4), st.lists(st.text(), max_size=4))
def test_two_lists_of_inputs_hash_alike_only_if_they_are_alike(first, second):
    made = [input_hash(level=1, strategy="s", outputs=each) for each in (first, second)]
    assert (made[0] == made[1]) == (first == second)


@given(st.text(), st.lists(st.text(), max_size=3))
def test_what_is_said_and_what_is_noted_beside_it_do_not_run_together(text, names):
    plain = output_hash(text=text)
    assert plain.startswith("sha256:")
    assert len(plain) == 71
    said = {
        output_hash(text=text, anchors=names),
        output_hash(text=text, tags=names),
        output_hash(text=text, entities=names),
    }
    assert len(said) == (3 if names else 1)


def test_level_strategy_and_overlap_count():
    given_ = {"level": 1, "strategy": "s", "outputs": ["x"], "overlap": ""}
    made = {
        input_hash(**(given_ | other))
        for other in ({}, {"level": 2}, {"strategy": "t"}, {"overlap": "x"}, {"outputs": []})
    }
    assert len(made) == 5
