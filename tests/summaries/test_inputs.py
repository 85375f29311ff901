"""What a summary is made from: all of its stretch once, nothing erased, nothing of our own."""

from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st
from test_status import node, revision

from hiermem.protocols import SourceText
from hiermem.summaries import inputs as reading
from hiermem.text import units
from hiermem.text.measure import VERBATIM
from hiermem.types import Message, Span, StoredMessage

AT = datetime(2024, 3, 15, 9, 0, tzinfo=UTC)


def count(text):
    return len(text.split())


def stored(index, text, **fields):
    message = Message(fields.pop("role", "user"), text, name="Ada", created_at=AT)
    return StoredMessage(
        index, message, **({"tokens": count(text) + 4, "size": 1, "hash": f"h{index}"} | fields)
    )


def read(span, messages, **how):
    return reading.from_messages(span, messages, count=count, **how)


def test_what_is_erased_quarantined_blank_or_our_own_is_covered_and_not_read():
    found = read(
        Span(0, 5),
        [
            stored(0, "keep this"),
            stored(1, "gone", state="erased"),
            stored(2, "poison", state="quarantined"),
            stored(3, " \n"),
            stored(4, "before MEMORY after", echoes=((7, 14),)),
        ],
    )
    assert [source.text for source in found.sources] == ["keep this", "before after"]
    assert found.outputs == ("h0", "h3", "h4[0:-7:14]")
    assert found.tokens == (2 + 4) + (2 + 4)


def test_slices_are_read_between_their_characters_and_hash_apart():
    long = stored(3, "one two three four", slices=(8,))
    first = read(Span(3, 4, 0, 8), [long])
    second = read(Span(3, 4, 8), [long])
    assert first.sources[0].text + second.sources[0].text == "one two three four"
    assert first.outputs != second.outputs


def test_trust_is_that_of_the_least_trusted_source():
    say = [stored(0, "a", role="system"), stored(1, "b"), stored(2, "c", role="tool")]
    assert read(Span(0, 3), say).trust == "tool"
    assert read(Span(0, 2), say[:2]).trust == "conversation"
    assert read(Span(0, 1), say[:1]).trust == "system"


def test_the_overlap_is_the_end_of_what_precedes_and_no_input():
    before = [stored(0, "far away"), stored(1, "near by"), stored(2, "erased", state="erased")]
    window = node(span=Span(3, 5))
    assert reading.overlap_before(window, before, 0)[0] == ""
    assert reading.overlap_before(window, before, 7)[0] == "near by"
    assert reading.overlap_before(window, before, 400)[0] == "Ada: far away\nAda: near by"
    sliced = node(span=Span(1, 2, 5))
    assert reading.overlap_before(sliced, before, 4)[0] == "ear "
    assert reading.overlap_before(sliced, before, 5)[0] == "near "


@given(
    texts=st.lists(st.text("ab \n", max_size=600), min_size=1, max_size=8),
    room=st.integers(150, 400),
)
def test_inputs_over_the_room_are_excerpts_and_the_short_ones_stay_whole(texts, room):
    """Broken, a request is over its model's window, or a short message is cut for a long one."""
    sources = tuple(SourceText(n, "user", "Ada", "", text) for n, text in enumerate(texts))
    whole = reading.Inputs(sources, ("h",), (("L1.0", 1),), 9_999, "conversation", anchors=())
    found = reading.fitted(whole, room, count=count)
    sizes = [count(source.text) for source in sources]
    if sum(sizes) + 5 * len(texts) <= room:
        assert found == whole
        return
    assert found.tokens <= room
    assert (found.outputs, found.serving, found.anchors) == (whole.outputs, whole.serving, None)
    fair = (room - 5 * len(texts)) // len(texts)
    for before, after, size in zip(sources, found.sources, sizes, strict=True):
        assert after.text == before.text or size > fair


def test_a_long_tool_result_is_read_as_an_excerpt_and_says_so_in_the_hash():
    """Broken, a summary is made of noise, or is not made again when the setting changes."""
    log = "\n".join(["begin", *(f"case {n} passed" for n in range(200)), "FAILED: case 7", "end"])
    messages = [stored(0, "run them"), stored(1, log, role="tool")]
    short = read(Span(0, 2), messages, tool_tokens=30)
    assert short.sources[1].text.splitlines() == [
        "begin", "case 0 passed [x200]", "[...]", "FAILED: case 7", "end",
    ]  # fmt: skip
    assert short.tokens < 40
    assert read(Span(0, 2), messages).sources[1].text == log, "extraction reads all of it"
    hashes = {read(Span(0, 2), messages, tool_tokens=most).outputs for most in (30, 31, None)}
    assert len(hashes) == 3
    spoken = [stored(0, log)]
    assert read(Span(0, 1), spoken, tool_tokens=30).sources[0].text == log, "a speaker's words"
    assert read(Span(0, 2), messages, tool_tokens=9_999) == read(Span(0, 2), messages)


@given(texts=st.lists(st.text(min_size=1, max_size=40), max_size=8), dated=st.booleans())
def test_p8_word_for_word_is_never_longer_than_the_inputs_and_says_all_of_them(texts, dated):
    day = "2024-03-15" if dated else ""
    given_ = tuple(SourceText(n, "user", "Ada", day, t) for n, t in enumerate(texts) if t.strip())
    tokens = sum(count(s.text) + 4 for s in given_)
    found = reading.Inputs(given_, (), (), tokens, "conversation")
    if not given_:
        return
    kept = reading.word_for_word(found, count=count)
    assert kept.tokens == count(kept.text) <= tokens
    for source in given_:
        assert source.text in kept.text
    if kept.units:
        assert units.unpack(units.pack(kept.units), kept.text) == kept.units


def test_summaries_are_read_as_the_sentences_they_were_made_of():
    made = [units.split("One is 5. Two is 6.", index=7, role="user", speaker="Ada", date="d")]
    text = units.render(made[0])
    child = replace(revision(), text=text, provenance=units.pack(made[0]), tokens=9, anchors=("5",))
    found = reading.from_children([(node(), child), (node(id="L1.1"), replace(child, text=""))])
    assert [unit.text for unit in found.sources[0].units] == ["One is 5.", "Two is 6."]
    assert len(found.sources) == 1
    assert found.outputs == ("o", "o")
    assert found.serving == (("L1.0", 1), ("L1.1", 1))
    assert found.anchors == ("5",)


def test_a_whole_message_on_record_comes_in_sentences():
    whole = units.Unit(3, 0, "user", "Ada", "", "First thing.\nSecond thing, with more.")
    packed = replace(revision(), text=units.render([whole]), provenance=units.pack([whole]))
    assert [unit.index for unit in reading.kept_units(packed)] == [3, 3]


def test_what_was_kept_word_for_word_comes_in_the_sentences_of_its_messages():
    """Broken: a pool that also had the message held such a sentence twice, and showed it twice."""
    text = "I cherish time with family. It's when I really feel alive."
    whole = units.Unit(3, 0, "user", "Ada", "", text)
    packed = replace(
        revision(), strategy=VERBATIM, text=units.render([whole]), provenance=units.pack([whole])
    )
    said = units.split(text, index=3, role="user", speaker="Ada", date="")
    assert list(reading.kept_units(packed)) == said
    assert len(said) == 2


def test_farewells_and_cheers_of_a_copied_window_are_left_out_unless_they_say_something():
    """Broken: a quarter of what level 2 read of two people's talk was "Bye!" and "Good luck!"."""
    told = [
        ("Ada", "Sure thing, Bob. I sold pump 3! Have a great day!"),
        ("Bob", "You've got this! Take care, Ada."),
        ("Ada", "I will. Never call me on Sundays! Talk to you soon!"),
    ]
    whole = [units.Unit(n, 0, "user", who, "", said) for n, (who, said) in enumerate(told)]
    text = units.render(whole)
    packed = replace(revision(), strategy=VERBATIM, text=text, provenance=units.pack(whole))
    source = reading.from_children([(node(), packed)]).sources[0]
    said = [unit.text for unit in source.units]
    assert said == ["I sold pump 3!", "I will.", "Never call me on Sundays!"]
    assert reading.from_children([(node(), packed)], verbatim=True).sources[0].units == tuple(whole)
    idle = [units.Unit(1, 0, "user", "Bob", "", "Bye, Ada! Take care!")]
    packed = replace(packed, text=units.render(idle), provenance=units.pack(idle))
    assert reading.kept_units(packed), "a window is never without a line"


def test_provenance_moves_with_the_conversation_or_is_dropped():
    made = units.split("One is 5. Two is 6.", index=7, role="user", speaker="Ada", date="")
    text, packed = units.render(made), units.pack(made)
    moved = reading.rebase(packed, text, shift=3, among=Span(10, 12))
    assert {unit.index for unit in units.unpack(moved, text)} == {10}
    assert reading.rebase(packed, text, shift=9, among=Span(10, 12)) == ""
    assert reading.rebase(packed, text, shift=0, among=Span(7, 8)) == packed
