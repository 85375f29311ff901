"""Draws what may stand in place of a stored value: another value, or the value with a damage."""

import re
import zlib

from hypothesis import strategies as st

HOSTILE = (
    None, -1, 0, 1, 7, 10**8, 2**62, 2**63 - 1, -(2**63), 1e308, float("inf"), "", "x",
    "open/L1/main", "[" * 100_000, "[]", "{}", "[1]", '{"a":1}', '["a"]', "9" * 5_000, "null",
    "[[1,2]]", b"", b"\xff\xfe", zlib.compress(bytes(10_000_000), 9),
)  # fmt: skip
_NUMBER = re.compile(r"-?\d+")
#: What may stand in place of a number inside of a text.
_OTHERS = (
    "-1", "0", "1", "10000000000", str(2**62), "null", "true", '"x"', "[]", "[" * 100_000,
    "9" * 5_000, "1e400", "NaN", "0.5",
)  # fmt: skip


@st.composite
def in_place_of(draw, value):
    """Draw another value for a cell that holds this one."""
    if value is None or value == "" or value == b"" or draw(st.integers(0, 7)) == 0:
        return draw(st.sampled_from(HOSTILE))
    match value:
        case int():
            bit = 1 << draw(st.integers(0, 40))
            near = (value + 1, value - 1, -value, 2 * value, value ^ bit)
            return draw(st.sampled_from([*near, 0, 2**62, str(value), value + 0.5]))
        case float():
            return draw(st.sampled_from([value + 1, -value, float("inf"), 2**62, "x"]))
        case str():
            return draw(damaged_text(value))
    at = draw(st.integers(0, len(value) - 1))
    return draw(
        st.sampled_from(
            [value[:at], value[:at] + b"\xff\x00" + value[at:], value[:at] + value[at + 7 :]]
        )
    )


@st.composite
def damaged_text(draw, text):
    """Draw a text that was cut, or in which one place differs; most often it is a number."""
    numbers = [found.span() for found in _NUMBER.finditer(text)]
    if numbers and draw(st.booleans()):
        start, stop = draw(st.sampled_from(numbers))
        near = str(int(text[start:stop]) + 1) if stop - start < 30 else "1"
        return text[:start] + draw(st.sampled_from([near, *_OTHERS])) + text[stop:]
    at = draw(st.integers(0, len(text) - 1))
    length = draw(st.integers(0, 30))
    middle = draw(st.sampled_from(["", *'[]{}",:x0-\\', "[" * 100_000]))
    return draw(st.sampled_from([text[:at], text[:at] + middle + text[at + length :], text + text]))
