"""The data that ships with the package: its format, and that each file is read once."""

from importlib.resources import files

import pytest

from hiermem import data

#: Those of the package that are lists of words.
LISTS = sorted(
    {file.name.removesuffix(".txt") for file in files(data).iterdir() if file.name.endswith(".txt")}
    - {"learning_rules", "published", "thesaurus"}
)


def test_a_list_may_hold_words_of_several_parts_and_marks(monkeypatch):
    text = "# a comment: none\n\nplaces: new_york c#\n    # porto\nmarks: . : ,\n"
    monkeypatch.setattr(data, "_read", lambda name: text.encode())
    lists = data.word_lists.__wrapped__("any")
    assert lists == {"places": {"new york", "c#", "#", "porto"}, "marks": {".", ":", ","}}


@pytest.mark.parametrize("name", LISTS)
def test_no_list_is_empty_or_named_twice(name):
    """Broken if an entry overwrites another one, or its words are lost."""
    titles = [entry.partition(": ")[0] for entry in data._entries(name)]
    lists = data.word_lists(name)
    assert sorted(titles) == sorted(lists)
    assert all(lists.values())
    assert data.word_lists(name) is lists, "it is read once"
