"""Cutting long texts: nothing lost, nothing parted, nothing too large, in linear time."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling import drawn

from hiermem.text.slices import Piece, best_break, char_points, is_boundary, token_points
from hiermem.tokens import TiktokenCounter

count = TiktokenCounter().count
count("loads the vocabulary, so that no drawn example is charged for it")

CLUSTERS = [
    "e\u0301", "\r\n", "👨\u200d👩\u200d👧\u200d👦", "👍🏽", "🇩🇪", "\u1112\u1161\u11ab",
    "\uac00\u11a8", "กำ", "क्षि", "❤\ufe0f", "1\ufe0f\u20e3", "\u06001",
    "🏴\U000e0067\U000e0062\U000e007f", " \u0301",
]  # fmt: skip
texts = st.lists(
    st.sampled_from([*CLUSTERS, " ", "\n", "\n\n", ". ", "word", "。", "漢", "\t", "a", "Zürich"])
    | st.text(max_size=6),
    max_size=60,
).map("".join)


def slices(text, points):
    return [text[a:b] for a, b in pairwise([0, *points, len(text)])]


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_no_boundary_lies_inside_a_cluster(cluster):
    """Broken if an accent, a flag or a family could be cut off its letter."""
    text = f"a{cluster}b"
    assert [i for i in range(1, len(text)) if is_boundary(text, i)] == [1, len(text) - 1]


@pytest.mark.parametrize(
    ("tail", "cut_after"),
    [
        ("one two.\n\nthree\nfour. five six", "one two.\n\n"),
        ("one two.\n \t\n\nthree\nfour. five six", "one two.\n \t\n\n"),
        ("one two. three\nfour. five six", "one two. three\n"),
        ("one two. three 'four.' five six", "one two. three 'four.' "),
        ("一二。三四「五六。」七八", "一二。三四「五六。」"), ("one two three", "one two "),
        ("onetwothree\te\u0301", "onetwothree\t"), ("onetwothree", "onetwothree"),
        ("onetwothre👍🏽", "onetwothre👍🏽"),
    ],
)  # fmt: skip
def test_the_best_break_is_the_last_of_the_best_kind_in_the_second_half(tail, cut_after):
    """Broken if a slice ends in the middle of a sentence where it need not."""
    head = "x" * len(tail)
    text = head + tail + "x" * 9
    end = len(head) + len(tail)
    assert text[: best_break(text, 0, end)] == head + cut_after


@given(texts, st.integers(1, 40))
def test_slices_by_characters_join_fit_and_part_no_cluster(text, room):
    """P3: broken if a slice is too long, empty, or cuts a cluster that would have fitted."""
    points = char_points(text, room)
    parts = slices(text, points)
    assert "".join(parts) == text
    assert all(len(part) <= room for part in parts)
    assert all(parts) or not text
    check_clusters(text, points, lambda cluster: len(cluster) > room)


@given(texts, st.integers(1, 30))
@drawn(300)
def test_slices_by_tokens_join_fit_and_part_no_cluster(text, room):
    """P3: broken if a slice measures more than its target for any reason but one large cluster."""
    points = token_points([Piece(text)], room, count)
    parts = slices(text, points)
    assert "".join(parts) == text
    assert all(parts) or not text
    for part in parts:
        assert count(part) <= room or len(part) == 1
    check_clusters(text, points, lambda cluster: count(cluster) > room)


def check_clusters(text, points, too_large):
    starts = [0, *points]
    for start, point in pairwise(starts):
        if not is_boundary(text, point, start):
            first = point
            while not is_boundary(text, first, start):
                first -= 1
            last = point
            while not is_boundary(text, last, start):
                last += 1
            # A forced cut may leave a slice that starts inside a cluster.
            assert first == start or too_large(text[first:last])
            assert too_large(text[start:last])


@given(st.lists(st.tuples(texts, st.none() | st.integers(0, 40), st.integers(0, 5)), max_size=8),
       st.integers(5, 40))  # fmt: skip
def test_pieces_with_a_price_are_never_cut(drawn, room):
    """Broken if an image's placeholder could be cut, or its price be paid twice or not at all."""
    pieces = [
        Piece(text + "\n", price, 0 if price is not None else extra) for text, price, extra in drawn
    ]
    text = "".join(piece.text for piece in pieces)
    points = token_points(pieces, room, count)
    assert list(points) == sorted(set(points))
    assert all(0 < point < len(text) for point in points)
    begin = 0
    for piece in pieces:
        stop = begin + len(piece.text)
        if piece.price is not None:
            assert not any(begin < point < stop for point in points)
        begin = stop
    for start, end in pairwise([0, *points, len(text)]):
        cost = begin = priced = dear = 0
        for piece in pieces:
            stop = begin + len(piece.text)
            low, high = max(start, begin), min(end, stop)
            if low < high:
                if begin >= start:
                    cost += piece.extra + (piece.price or 0)
                    priced = max(priced, piece.price or 0)
                cost += 0 if piece.price is not None else count(text[low:high])
                dear += 0 if piece.price == 0 else high - low
            begin = stop
        # One character with its extra may be too much; what costs nothing may stand beside it.
        assert cost <= room or priced > room or dear == 1


def test_slices_are_nearly_full():
    """Broken if probing gives up early: a message of n targets would be n * 2 windows."""
    text = " ".join(f"word{n % 97}" for n in range(20_000))
    assert token_points([Piece("a few words")], 100, count) == token_points([], 10, count) == ()
    points = token_points([Piece(text)], 500, count)
    assert len(points) <= 1.15 * count(text) / 500
