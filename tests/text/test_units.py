"""What a unit is, and that what is rendered can be taken apart again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiermem.errors import StoreCorruptError
from hiermem.protocols import SourceText
from hiermem.text.units import LABEL_CAP, UNIT_CAP, of_source, pack, prose, render, split, unpack
from hiermem.types import Unit

TEXTS = st.text(max_size=300) | st.lists(
    st.sampled_from(
        ["We met. ", "Yes. ", "```", "py\ndef f():\n", "\n", "# Head\n", "Wow, ", "中文。", " ",
         "e.g. ", "1. ", "...", '" ', "a" * 700, "[2024-01-01]\n", "Ann: "]
    ),
    max_size=25,
).map("".join)  # fmt: skip
LABELS = st.sampled_from(["Ann", "Bob", "", "User", "A\nB", "x" * 90])
DATES = st.sampled_from(["", "2024-03-15", "2024-03-16"])


@st.composite
def conversations(draw: st.DrawFn) -> list[Unit]:
    found: list[Unit] = []
    for index in range(draw(st.integers(0, 5))):
        found += split(
            draw(TEXTS),
            index=draw(st.sampled_from([index, None])),
            role=draw(st.sampled_from(["user", "assistant"])),
            speaker=draw(LABELS),
            date=draw(DATES),
        )
    return found


def pieces(text: str) -> list[str]:
    return [unit.text for unit in split(text, index=0, role="user", speaker="Ann", date="")]


@given(conversations(), st.data())
def test_any_kept_units_come_back_exactly_from_text_and_provenance(units, data):
    kept = [unit for unit in units if data.draw(st.booleans())]
    assert unpack(pack(kept), render(kept)) == tuple(kept)


@given(conversations())
def test_no_unit_starts_a_line_so_a_speaker_or_date_cannot_be_forged(units):
    for unit in units:
        assert len(unit.text) <= UNIT_CAP
        assert unit.text.strip()
        assert len((unit.text + unit.speaker).splitlines()) == 1
        assert len(unit.speaker) <= LABEL_CAP


@given(TEXTS)
def test_a_text_that_is_not_blank_gives_a_unit(text):
    assert bool(pieces(text)) == bool(text.strip())


@given(conversations())
def test_provenance_of_another_text_is_refused(units):
    with pytest.raises(StoreCorruptError):
        unpack(pack(units), render(units) + "!")


@pytest.mark.parametrize(
    "packed", ["[", "{}", "[1,2,3]", "[[],[],[[0,9,9,0,5]]]", "null", "[" * 9999]
)
def test_damaged_provenance_is_a_typed_error(packed):
    with pytest.raises(StoreCorruptError):
        unpack(packed, "some text")


def test_no_provenance_gives_no_units():
    assert unpack("", "written by a model") == ()


def test_sentences_lines_and_closing_quotes_are_kept_apart_rightly():
    assert pieces('He said "go." Then we left.\n- buy milk') == [
        'He said "go."',
        "Then we left.",
        "- buy milk",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "- 1. Install it first", "I met Dr. Miller today", "Use e.g. Redis for that",
        "No. We stay.", "They flew from John A. Osborne Airport",
        "Die Pumpe Nr. 1 läuft heiß, ca. 91 Grad", "See Fig. 3, and No. 7 on Jan. 5",
        "St. Louis is far", "I read J.K. Rowling and George R.R. Martin",
        "N.K. Jemisin writes, he is in the U.S. Navy",
    ],
)  # fmt: skip
def test_a_dot_that_ends_no_sentence_does_not_part_it(text):
    assert pieces(text) == [text]


def test_a_sentence_may_end_in_a_single_letter():
    assert pieces("It was I. Then she left.") == ["It was I.", "Then she left."]
    assert pieces("We left the U.S. It was late.") == ["We left the U.S.", "It was late."]
    assert pieces("It is 6 ft. Dive in.") == ["It is 6 ft.", "Dive in."]
    assert pieces("It is rich in vitamin c. Eat it.") == ["It is rich in vitamin c.", "Eat it."]


def test_a_sentence_stays_whole_and_a_piece_of_one_that_is_too_long_says_so() -> None:
    """Broken once: a third of the lines of a chat were halves that ended in a comma."""
    long = (
        "I've always loved playing strategy games like Civilization and Total War, so I decided"
        " to challenge myself and create one of my own, and I want to finish it by March 3."
    )
    assert pieces(long) == [long]
    cut = pieces(", ".join(f"then we moved crate number {at} into the hall" for at in range(30)))
    assert len(cut) > 2
    assert all(piece.endswith("…") and piece[-2] != "," for piece in cut[:-1])
    assert not cut[-1].endswith("…")


def test_code_becomes_one_digest_of_signatures_and_files():
    text = (
        "Look:\n```python\n# app/main.py\ndef run(port: int):\n    secret = 1\n```\nDone with that."
    )
    assert pieces(text) == [
        "Look:",
        "[python: # app/main.py; def run(port: int)]",
        "Done with that.",
    ]
    assert "secret" not in prose(text)


def test_the_digest_of_other_code_is_its_beginning_and_says_that_it_goes_on():
    assert pieces("```\nx = 1\n\ny = 2\n```") == ["[code: x = 1 y = 2]"]
    (digest,) = pieces("```js\n" + "const key = value\n" * 9 + "```")
    assert digest.startswith("[js: const key = value const")
    assert digest.endswith("…]")


def test_an_unclosed_fence_is_code_to_its_end():
    assert pieces("Look ```\ndef f():\n  x.") == ["Look", "[code: def f()]"]


def test_fillers_go_only_where_punctuation_follows():
    assert pieces("Wow, thanks so much Mel, we won the cup.") == ["We won the cup."]
    assert pieces("Yeah, I sold it.") == ["I sold it."]
    assert pieces("No new bugs.") == ["No new bugs."]
    assert pieces("No, we keep Postgres.") == ["No, we keep Postgres."]


def test_back_channel_is_dropped_beside_content_and_kept_alone():
    assert pieces("Sounds great! I will fly on Monday.") == ["I will fly on Monday."]
    assert pieces("Sounds great!") == ["Sounds great!"]


def test_rendering_writes_a_date_when_it_changes_and_a_speaker_for_each_message():
    units = [
        *split("We met. We ate.", index=1, role="user", speaker="Ann", date="2024-03-15"),
        *split("It rained.", index=2, role="user", speaker="Bob", date="2024-03-15"),
        *split("It was over.", index=5, role="user", speaker="Bob", date="2024-03-16"),
    ]
    assert render(units) == (
        "[2024-03-15]\nAnn: We met. We ate.\nBob: It rained.\n[2024-03-16]\nBob: It was over."
    )


def test_a_source_with_units_is_not_read_again():
    kept = (Unit(7, 3, "user", "Ann", "", "We met."),)
    source = SourceText(None, "user", "Summary", "", "Ann: We met.", units=kept)
    assert of_source(source) == list(kept)
