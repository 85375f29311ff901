"""That what is marked is what was found."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiermem.search.query import matched
from hiermem.text.terms import terms


@pytest.mark.parametrize(
    ("text", "asked", "marked"),
    [
        ("We planned the CAFÉ visit.", "plan a café", ["planned", "CAFÉ"]),
        ("My kitten and my car", "which pets", ["kitten"]),
        ("今天天气很好", "天气", ["天气"]),
        ("今天天气很好", "天气很", ["天气很"]),
        ("我家的猫很可爱", "猫", ["猫"]),
        ("Die Führerscheinprüfung ist heute", "Prüfungen", ["Führerscheinprüfung"]),
        ("Er war in Zürich 🎂", "Zurich 🎂", ["Zürich", "🎂"]),
        ("nothing here", "turtle", []),
        ("", "turtle", []),
    ],
)
def test_found_words_are_marked(text, asked, marked):
    assert [text[b:e] for b, e in matched(text, asked)] == marked


@given(st.text(max_size=80), st.text(max_size=40))
def test_marks_are_ordered_apart_and_inside(text, asked):
    """A renderer that inserts signs at them would garble the text otherwise."""
    flat = [place for stretch in matched(text, asked) for place in stretch]
    assert flat == sorted(set(flat))
    assert not flat or (flat[0] >= 0 and flat[-1] <= len(text))


@given(st.text("abc dé中文", max_size=40))
def test_a_text_asked_for_itself_is_marked(text):
    assert bool(terms(text)) <= bool(matched(text, text))
