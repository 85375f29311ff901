"""What a reader cannot see does not reach the bank; what can be seen does, in every script."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling import drawn

from hiermem.bank.sections import folded, tidy, visible

#: Texts that need what hides elsewhere: joiners, selectors, flags, marks of other scripts.
NEEDED = (
    "नमस्ते क्‍ष", "می‌خواهم", "👩‍👩‍👧‍👦", "❤️‍🔥", "1️⃣ #️⃣", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "☺︎", "葛󠄀飾区",
    "e\u0301", "שלום world", "a\tb",
    "مرحبا", "한국어", "ภาษาไทย", "A\u0300 — “quoted” … ½ ≠ №",
)  # fmt: skip
HIDDEN = (
    "\u202e", "\u2066", "\u2069", "\u200b", "\u2060", "\ufeff", "\u00ad", "\u180e", "\u061c",
    "\u200f",
    "\x00", "\x08", "\x1b", "\x7f", "\x85", "\u2028", "\u2029", "\u3164", "\u115f", "\U000e0001",
    "\U000e0041", "\ufff9", "\ufe0f\ufe0f\ufe0f", "\u200d\u200d", "\U000e0101\U000e0102",
)  # fmt: skip


@pytest.mark.parametrize("text", NEEDED)
def test_every_script_and_emoji_is_as_it_was(text: str) -> None:
    assert visible(text) == text
    assert tidy(text) == text + "\n"


@pytest.mark.parametrize("hidden", HIDDEN, ids=ascii)
def test_what_hides_is_left_out(hidden: str) -> None:
    assert visible(f"re{hidden}ad") == "read"
    assert visible(f"{hidden}# A{hidden}") == "# A"


hiding = st.sampled_from(("\u202e", "\ufe0f", "\u200d", "\U000e0101", "\U000e0041", "❤", "a", "🏴"))


@drawn(200)
@given(st.lists(hiding, max_size=12).map("".join))
def test_nothing_hides_between_what_is_left_out(text: str) -> None:
    """Selectors that spell something, set apart by a mark that goes, would survive."""
    after = visible(text)
    assert visible(after) == after
    for run in ("\ufe0f\ufe0f", "\U000e0101\U000e0101", "\u200d\u200d", "\ufe0f\U000e0101"):
        assert run not in after
    assert after.count("❤") + after.count("a") + after.count("🏴") == sum(
        text.count(char) for char in "❤a🏴"
    )


@drawn(200)
@given(st.text(st.characters(codec="utf-8"), max_size=40))
def test_nothing_that_can_be_seen_is_changed(text: str) -> None:
    after = visible(text)
    assert visible(after) == after
    kept = [char for char in after if char != "\n"]
    rest = iter(text)
    assert all(any(char == other for other in rest) for char in kept)
    gone = set(text) - set(after)
    assert all(unicodedata.category(char) in {"Cc", "Cf", "Mn", "Lo", "Zl", "Zp", "Cn", "Co"}
               for char in gone)  # fmt: skip
    assert not any(unicodedata.category(char).startswith("L") and char not in
                   "\u115f\u1160\u3164\uffa0" for char in gone)  # fmt: skip


def test_a_file_ends_in_one_line_end() -> None:
    assert tidy("\r\n\r\n a\r\nb \r\n\n") == " a\nb\n"
    assert tidy(" \n\u200b\n") == ""
    assert folded("\ta\u00a0 b\u3000c ") == "a b c"
