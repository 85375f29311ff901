"""What reads a text takes time in proportion to its length, whatever a hostile one repeats."""

from contextlib import suppress

import pytest
from linear import ALPHABETS, TIMES, drawn, is_linear, repeated
from sampling import params

from hiermem import Memory, Message
from hiermem.calls.answers import parse
from hiermem.calls.failures import InvalidAnswerError
from hiermem.search.query import indexed
from hiermem.text.facts import Source
from hiermem.text.fence import escape, find, tenant_key, unescape
from hiermem.text.slices import Piece, best_break, char_points, excerpt, token_points
from hiermem.text.terms import words
from hiermem.text.units import split
from hiermem.text.wishes import wishes_in
from hiermem.tokens import ApproximateCounter, TiktokenCounter


def test_linear_work_is_told_from_quadratic():
    """Broken, every test that rests on it passes whatever the work costs."""
    assert is_linear(range, lambda given: [n for n in given for _ in range(50)], size=5_000)
    assert not is_linear(range, lambda given: [n for n in given for _ in given], size=700)


def test_a_repeated_unit_has_the_size_that_was_asked_for():
    assert [repeated("abc", size) for size in (0, 2, 3, 7)] == ["", "ab", "abc", "abcabca"]
    assert TIMES**2 > 2 * 2.6**2, "linear and quadratic work lie far apart"


@pytest.mark.parametrize("alphabet", params(list(ALPHABETS), 3))
def test_one_long_run_costs_time_in_proportion_to_its_length(alphabet):
    """Broken, one message of some kind of characters stops a process for minutes."""

    def live(run: str) -> None:
        with Memory.open(":memory:") as memory:
            session = memory.session("s")
            session.append([Message.user(run), *[Message.user(f"Ok {n}.") for n in range(20)]])
            session.search("the pump")

    assert is_linear(lambda size: drawn(alphabet, size), live, size=20_000, slack=0.05)


COUNT = TiktokenCounter().count
KEY, CLOSING = tenant_key(b"0" * 32, "acme"), f"[[/hiermem {'0' * 20}]]"


def slices(text: str) -> None:
    token_points([Piece(text)], 2000, COUNT)
    char_points(text, 6000)


def fences(text: str) -> None:
    find(f"[[/hiermem {text}", key=KEY)
    unescape(escape(f"[[/hiermem {text}"))


def answer(text: str) -> None:
    with suppress(InvalidAnswerError):
        parse(f'{{"summary":{text}')


#: What reads a text, how long the shorter one is, what a cache may add, and what it repeats.
READERS = [
    (lambda text: wishes_in(Message.user(f"{text}always use x")), 20_000, 0.02,
     ["always ", "<a>", '"', "call me ", "when i ask ", "i prefer ", "[[hiermem ", "hi ", "- x\n"]),
    # Blanks leave a cache of the processor between 75,000 and 150,000 of them.
    (slices, 150_000, 0.05,
     ["a", " ", "\n", "\u0301", "🇩", ". ", " \u0301", '.""""""""""', "👨\u200d", "漢", "\n \t",
      "\r\n", "1", "some words, and more.\n\n"]),
    (lambda text: best_break(text, 0, len(text)), 15_000, 0.02, [".", "!?", "\u2026", ".)"]),
    (lambda text: split(text, index=0, role="user", speaker="Ann", date=""), 25_000, 0.01,
     ["a", "7", "QmFz+/=", "/", ".", "`", "\n", " ", '."', "e.g. X", "Wow, ", "中文。", "😀",
      "```\n", "Ab. ", "# ", "\t|", "a\u0301"]),
    (fences, 75_000, 0.05,
     ["[[hiermem L1.0]]\n", "[[hiermem L1.0 ", "[[", "[ ", "[[\\", '[[hiermem "',
      '[[hiermem x a="\\', CLOSING, "\uff3b\uff3b hiermem", f"[[hiermem a]]\n{CLOSING}",
      "[[h\u0301", "[\u200b", "[", "[[hierme", "\u0301"]),
    (lambda text: Source([text], limit=64).fidelity(text), 15_000, 0.02,
     ["a", "7", "./", ".", "`", '"', "'", " ", "never ", "do not a b c ", "2024-", "1 may ",
      "https://", "a_", "「", "\n", "# ", "**a", "a:", "A ", "12,345,", "中", "1月", "a/", "x@"]),
    (lambda text: excerpt(text, 400, COUNT), 50_000, 0.02,
     ["a line of words\n", "x", '{"é": 1},', "word {} of it\n"]),
    # A run of a million blanks would make tiktoken panic; of full stops, it is one piece.
    (lambda text: COUNT(f"{text}a"), 275_000, 0.2, [" ", "\u3000", "\n", " \n", "."]),
    (COUNT, 75_000, 0.2, ["A", "a", "./", "\u6f22", "7", "\u0301", "x1"]),
    (ApproximateCounter().count, 50_000, 0.02,
     ["a", "A", "Aa", " ", "\n ", "1", "漢", "😀", ".", "aaaaaaaaaaaaaaaa1"]),
    (answer, 200_000, 0.02, ['"\\"', "[", "{", '"a",', "[],", "\\", " ", "9", '{"a":', "```\n"]),
    (lambda text: indexed(text, words(text)), 40_000, 0.02,
     ["ue", "schprö", "猫", "بال", "🎂", "й\u0301", "a", "中", "é ", "_"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("reader", "piece"),
    params([(number, piece) for number, row in enumerate(READERS) for piece in row[3]], 40),
)
def test_a_hostile_text_is_read_in_time_in_proportion_to_its_length(reader, piece):
    """Broken, one message, output of a tool or answer keeps a process busy for minutes."""
    read, size, slack, _ = READERS[reader]
    assert is_linear(lambda size: repeated(piece, size), read, size=size, slack=slack)
