"""What a unit is, and that what is rendered can be taken apart again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiermem.errors import StoreCorruptError
from hiermem.protocols import SourceText
from hiermem.text.units import LABEL_CAP, UNIT_CAP, of_source, pack, render, split, unpack
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
def test_any_kept_units_come_back_exactly_and_with_their_own_text_alone(units, data):
    kept = [unit for unit in units if data.draw(st.booleans())]
    assert unpack(pack(kept), render(kept)) == tuple(kept)
    with pytest.raises(StoreCorruptError):
        unpack(pack(units), render(units) + "!")
    assert unpack("", "written by a model") == ()


@pytest.mark.parametrize("packed", ["[", "[1,2,3]", "[[],[],[[0,9,9,0,5]]]", "null", "[" * 9999])
def test_damaged_provenance_is_a_typed_error(packed):
    with pytest.raises(StoreCorruptError):
        unpack(packed, "some text")


@given(TEXTS)
def test_a_text_that_is_not_blank_gives_a_unit(text):
    assert bool(pieces(text)) == bool(text.strip())


@pytest.mark.parametrize(
    "parts",
    [
        # A dot that ends no sentence does not part it.
        ["- 1. Install it first"], ["I met Dr. Miller today"], ["Use e.g. Redis for that"],
        ["No. We stay."], ["They flew from John A. Osborne Airport"],
        ["Die Pumpe Nr. 1 läuft heiß, ca. 91 Grad"], ["See Fig. 3, and No. 7 on Jan. 5"],
        ["I read J.K. Rowling and George R.R. Martin"], ["No new bugs."], ["Sounds great!"],
        ["N.K. Jemisin writes, he is in the U.S. Navy"], ["No, we keep Postgres."],
        # A sentence may end in a single letter, or in a quote.
        ["It was I.", "Then she left."], ["We left the U.S.", "It was late."],
        ["It is 6 ft.", "Dive in."], ["It is rich in vitamin c.", "Eat it."],
        ['He said "go."', "Then we left."],
    ],
)  # fmt: skip
def test_sentences_are_kept_apart_rightly(parts):
    assert pieces(" ".join(parts)) == parts


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("He left.\n- buy milk", ["He left.", "- buy milk"]),
        # Fillers go only where punctuation follows, back-channel only beside content.
        ("Wow, thanks so much Mel, we won the cup.", ["We won the cup."]),
        ("Yeah, I sold it.", ["I sold it."]),
        ("No worries, John!\nI sold it.", ["I sold it."]),
        ("Sounds great! I will fly on Monday.", ["I will fly on Monday."]),
        # Code becomes one digest of signatures and files, or of its beginning.
        ("```\nx = 1\n\ny = 2\n```", ["[code: x = 1 y = 2]"]),
        ("Look ```\ndef f():\n  x.", ["Look", "[code: def f()]"]),
        (
            "Look:\n```python\n# app/main.py\ndef run(port: int):\n    secret = 1\n```\nDone now.",
            ["Look:", "[python: # app/main.py; def run(port: int)]", "Done now."],
        ),
        (
            "```js\n" + "const key = value\n" * 9 + "```",
            ["[js: " + "const key = value " * 3 + "const…]"],
        ),
    ],
)
def test_what_is_a_unit(text, expected):
    assert pieces(text) == expected


@given(conversations())
def test_no_unit_starts_a_line_so_a_speaker_or_date_cannot_be_forged(units):
    for unit in units:
        assert len(unit.text) <= UNIT_CAP
        assert unit.text.strip()
        assert len((unit.text + unit.speaker).splitlines()) == 1
        assert len(unit.speaker) <= LABEL_CAP


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
