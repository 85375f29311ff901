"""What a hash covers decides what is made twice: every part counts, and none run together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiermem.text.measure import VERBATIM, input_hash, output_hash, strategy_hash

STRATEGY = {
    "template": "t@1#a", "style": "detailed", "lengths": ["tokens", 0.5], "temperature": 0.3,
    "model": "m", "counter": "c",
}  # fmt: skip
INPUT = {"level": 1, "strategy": "s", "outputs": ["x"], "overlap": ""}
OUTPUT = {"text": "t", "anchors": [], "tags": [], "entities": []}


@pytest.mark.parametrize(
    ("hashed", "parts", "other"),
    [
        (
            strategy_hash, STRATEGY,
            {"template": "t@2#a", "style": "concise", "lengths": ["tokens", 0.4],
             "temperature": 0.4, "model": "n", "counter": "d"},
        ),
        (input_hash, INPUT, {"level": 2, "strategy": "t", "overlap": "x", "outputs": []}),
        (output_hash, OUTPUT, {"text": "u", "anchors": ["n"], "tags": ["n"], "entities": ["n"]}),
    ],
)  # fmt: skip
def test_every_part_changes_a_hash(hashed, parts, other):
    made = {hashed(**(parts | {name: value})) for name, value in other.items()}
    assert len(made | {hashed(**parts), VERBATIM}) == len(other) + 2
    assert all(each.startswith("sha256:") and len(each) == 71 for each in made)


@given(st.lists(st.text(), max_size=4), st.lists(st.text(), max_size=4))
def test_two_lists_of_inputs_hash_alike_only_if_they_are_alike(first, second):
    made = [input_hash(level=1, strategy="s", outputs=each) for each in (first, second)]
    assert (made[0] == made[1]) == (first == second)
