"""By which terms a text is found, in any script."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiermem.text import terms as module
from hiermem.text.terms import number, terms, words, written


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("planning trips", "We PLANNED a trip."), ("CAFÉ", "the cafe\u0301 at the corner"),
        ("straße", "STRASSE"), ("42", "order no. 42!"), ("会議", "明日の会議は十時です"),
        ("ภาษา", "ฉันพูดภาษาไทยได้"), ("ພາສາ", "ຂ້ອຍເວົ້າພາສາລາວ"), ("ភាសា", "ខ្ញុំនិយាយភាសាខ្មែរ"),
        ("नमस्ते", "उसने नमस्ते कहा"), ("서울", "나는 서울 사람"), ("Київ", "місто КИЇВ"),
        ("\uff46\uff55\uff4c\uff4c", "full width"), ("hiermem_core", "the module hiermem.core"),
    ],
)  # fmt: skip
def test_words_are_found_and_parts_of_other_words_are_not(query, text):
    """A language whose words were not split, or not folded, could not be searched at all."""
    assert set(terms(query)) <= set(terms(text))
    assert terms(query)
    for one, other in (("cat", "concatenate"), ("京都", "東京の都合")):
        assert not set(terms(one)) <= set(terms(other))
    assert terms("I told you that my cat is mine") == ["i", "told", "my", "cat", "mine"]


@given(st.text(max_size=200))
def test_words_of_ascii_text_are_those_of_the_pattern(text):
    """Broken if a message is indexed under other words than it is asked for with."""
    assert all(0 <= number(term) < 2**32 for term in terms(text))
    text = text.encode("ascii", "ignore").decode()
    found = [word[:64] for word in module._TOKEN.findall(text.lower())]
    assert words(text) == written(text) == found


@given(st.text("abc é中文ไ_-", max_size=60), st.text("abc é中文ไ_-", max_size=60))
def test_joining_with_a_space_joins_the_words(one, other):
    """A message's terms may not depend on what stands elsewhere in it."""
    assert words(f"{one} \n {other}") == words(one) + words(other)
