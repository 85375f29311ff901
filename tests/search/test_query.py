"""What a question is read as, and that kinds have their members."""

import pytest

from hiermem import data
from hiermem.search.query import read_query
from hiermem.text.terms import STOP_WORDS, number


def test_stop_words_alone_are_looked_for():
    assert read_query("to be or not to be").numbers == {
        number(word) for word in ("to", "be", "or", "not")
    }


def test_a_pasted_document_costs_what_a_long_question_does():
    query = read_query(" ".join(f"wörter{i}" for i in range(10_000)) + " pet")
    assert len(query.terms) == 1_000
    assert not any(term.parts or term.members for term in query.terms)


@pytest.mark.parametrize(
    ("text", "own", "to_assistant", "overview"),
    [
        ("What is my budget?", True, False, False),
        ("Tell me about Ada.", False, False, False),
        ("Remind me where I put the keys.", True, False, False),
        ("What did you suggest for my trip?", True, True, False),
        ("What was your advice?", False, True, False),
        ("Can you help with cars?", False, False, False),
        ("Please summarize how the project went.", False, False, True),
        ("Give me a recap.", False, False, True),
    ],
)
def test_whose_words_are_wanted(text, own, to_assistant, overview):
    query = read_query(text)
    assert (query.first_person, query.to_assistant, query.overview) == (own, to_assistant, overview)


@pytest.mark.parametrize(
    ("text", "of_form"),
    [("list the turtles", "10"), ("list the topics discussed", "101"), ("list", "0")],
)
def test_words_of_form_weigh_less_unless_there_is_nothing_else(text, of_form):
    assert [term.of_form for term in read_query(text).terms] == [flag == "1" for flag in of_form]


def test_no_entry_is_a_stop_word():
    """A stop word is in no index, so that an entry of it would be dead."""
    entries = {word for pair in data.thesaurus() for group in pair for word in group}
    assert len(entries) > 1_000
    assert entries & STOP_WORDS == set()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("When did Ada move?", True), ("In what year was the flood?", True),
        ("Wann war das Treffen?", True), ("Когда мы переехали?", True), ("什么时候开学?", True),
        ("What do you do when it rains?", False), ("Where did Ada move?", False),
    ],
)  # fmt: skip
def test_questions_for_a_time(text, expected):
    assert read_query(text).for_time is expected
