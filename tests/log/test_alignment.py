"""How a whole history is laid over a session: what is new of it, and where the two differ."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiermem import Message, ToolCall
from hiermem.convert import from_anthropic, from_openai, from_responses
from hiermem.log.alignment import align, said
from hiermem.types import TextPart

KEY = b"k" * 32
#: Few different messages, so that histories repeat themselves.
MARKS = st.lists(st.sampled_from("abc"), max_size=12)


def marked(marks, start=0):
    return dict(enumerate(marks, start))


def over(history, session):
    return align(marked(history), marked(session))[:2]


@given(held=st.lists(st.integers(), unique=True), cut=st.integers(0, 12), more=st.integers(0, 12))
def test_a_history_that_lacks_the_end_says_where_it_ends(held, cut, more):
    """Broken if a client that took messages back was shown them again."""
    session, kept = marked(held), held[:cut]
    ends_at = cut if cut < len(held) else None
    assert align(marked(kept), session) == (len(kept), None, ends_at)
    head, last = held[: len(kept) + more], max(0, len(held) - 2)
    if len(head) < len(session):  # a long session is read at both ends only
        assert align(marked(kept), marked(head), marked(held[last:], last))[2] == ends_at
    begin = min(3, len(kept))
    if len(kept) - begin >= 2:
        assert align(marked(kept[begin:]), session)[2] == ends_at


@pytest.mark.parametrize(
    ("history", "session", "found"),
    [
        # One common message is enough only at the beginning.
        ("ab", "a", (1, None)), ("cd", "abc", (0, 0)), ("bcd", "abc", (2, None)),
        # A new answer at the end of a shortened history is a rewrite there.
        ("defX", "abcdefg", (3, 6)),
        # A tail that repeats is laid where it meets no other message.
        (["ok", "done", "new"], ["greet", "hi", "ok", "done", "ok", "done"], (2, None)),
        ("abc", "abab", (2, None)),
    ],
)  # fmt: skip
def test_a_history_is_laid_where_most_of_it_agrees(history, session, found):
    """Broken if a new message looked like a rewrite because the talk had said the same before."""
    assert over(history, session) == found


@given(history=MARKS, held=MARKS, cut=st.integers(1, 12))
def test_an_end_that_is_read_alone_is_aligned_as_the_whole(history, held, cut):
    """A long session is not read as a whole: only as much of both ends as a history may reach."""
    head, last = held[: max(len(history), cut)], max(0, len(held) - 2 * len(history) - cut)
    tail = None if len(head) == len(held) else marked(held[last:], last)
    found = align(marked(history), marked(head), tail)
    whole = align(marked(history), marked(held))
    if whole[1] is None and found[1] is None:
        assert found == whole
    assert found[0] <= whole[0]


def test_the_same_is_said_in_other_shapes():
    """Role, content, name and tool calls are compared; ids, times and shapes are not."""
    parts = Message("user", (TextPart("Hello"),))
    plain = Message.user("Hello", key="k")
    assert said([parts], key=KEY) == said([plain], key=KEY)
    for other in (
        Message.assistant("Hello"),
        Message.user("hello"),
        Message.user("Hello", name="A"),
    ):
        assert said([other], key=KEY) != said([plain], key=KEY)


@given(
    steps=st.lists(st.integers(1, 3), max_size=8),
    more=st.integers(0, 8),
    changed=st.integers(0, 3),
    data=st.data(),
)
def test_a_step_may_be_divided_into_messages_in_any_way(steps, more, changed, data):
    """Broken if one message of text and calls differed from its text and its calls in messages."""

    def divided(steps):
        """Return the messages of some steps, and of each the number of its step."""
        messages, owners = [], []
        for number, parts in enumerate(steps):
            left = parts
            while left:
                size = data.draw(st.integers(1, len(left)))
                messages.append(left[0] if size == 1 else left[:size])
                owners.append(number)
                left = left[size:]
        return messages, owners

    steps = [tuple(f"{number}.{part}" for part in range(n)) for number, n in enumerate(steps)]
    held, owners = divided(steps)
    kept = steps[: len(steps) - more] if more < len(steps) else steps
    older, _ = divided(kept)
    ends_at = owners.index(len(kept)) if len(kept) < len(steps) else None
    assert align(marked(older), marked(held)) == (len(older), None, ends_at)
    history, _ = divided([*steps, ("new", "and"), ("last",)])
    new = [part for mark in history[align(marked(history), marked(held))[0] :] for part in (
        mark if isinstance(mark, tuple) else (mark,)
    )]  # fmt: skip
    assert new == ["new", "and", "last"]
    if changed < len(steps):
        other = (*steps[changed][:-1], "another")
        history, owned = divided([*steps[:changed], other, *steps[changed + 1 :]])
        run, at, _ = align(marked(history), marked(held))
        assert owned[run] == owners[at] == changed


def test_many_equal_messages_are_aligned_at_once():
    """Broken if the time grew with the square of a history that repeats itself."""
    same = ["ok"] * 5_000
    assert over([*same, "new"], same) == (5_000, None)
    # It might begin anywhere; it is laid where it meets no other message.
    assert over(["ok"] * 4_000 + ["new"], same) == (4_000, None)


def said_once(*messages):
    return list(said(messages, key=KEY).values())


@pytest.mark.parametrize(
    ("one", "other"),
    [('{"a": 1, "b": "\u00e9"}', '{"b":"\\u00e9","a":1}'), ("", "{}"), ("{}", " { } ")],
)
def test_arguments_are_compared_as_json(one, other):
    """A9: broken if a client that writes the same arguments otherwise seemed to rewrite."""

    def call(arguments):
        return Message.assistant("", tool_calls=(ToolCall("c", "f", arguments),))

    assert said_once(call(one)) == said_once(call(other))
    assert said_once(call('{"a": 1}')) != said_once(call('{"a": 2}'))


CHAT = [
    {"role": "user", "content": [{"type": "text", "text": "See"}, {"type": "image_url",
     "image_url": {"url": "https://x.org/a.png", "detail": "low"}}]},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function",
     "function": {"name": "f", "arguments": '{"a":1}'}}]},
    {"role": "tool", "content": "42", "tool_call_id": "c1", "name": "f"},
    {"role": "assistant", "content": "Done."},
]  # fmt: skip
BLOCKS = [
    {"role": "user", "content": [{"type": "text", "text": "See"}, {"type": "image",
     "source": {"type": "url", "url": "https://x.org/a.png"}}]},
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": "s"},
     {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1",
     "content": [{"type": "text", "text": "42"}]}]},
    {"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
]  # fmt: skip
ITEMS = [
    {
        "role": "user",
        "content": [
            {"type": "input_text", "text": "See"},
            {"type": "input_image", "image_url": "https://x.org/a.png"},
        ],
    },
    {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "x"},
    {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a": 1}', "id": "fc"},
    {"type": "function_call_output", "call_id": "c1", "output": "42"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]},
]


def test_one_history_is_the_same_in_every_shape_and_without_its_thoughts():
    """A9: broken if a client that changed its provider, or dropped thoughts, seemed to rewrite."""
    wanted = said_once(*from_openai(CHAT))
    assert said_once(*from_anthropic(BLOCKS)) == wanted
    assert said_once(*from_responses(ITEMS)) == wanted
    assert len(wanted) == 4


def test_a_message_of_text_and_calls_is_its_text_and_its_calls():
    calls = (ToolCall("c1", "f", '{"a": 1}'), ToolCall("c2", "g", "{}"))
    whole = Message.assistant("Let me look.", tool_calls=calls)
    text, *each = (
        Message.assistant("Let me look."),
        *(Message.assistant("", tool_calls=(call,)) for call in calls),
    )
    after = [Message.user("And now?"), Message.assistant("Done.")]
    for one, other in (([whole], [text, *each]), ([text, *each], [whole])):
        history = said([*one, *after], key=KEY)
        assert align(history, said([*other, after[0]], key=KEY))[:2] == (len(one) + 1, None)
        assert align(history, said([*other[:-1], *after], key=KEY))[1] is not None
    assert said_once(whole) != said_once(Message.assistant("Let me look.", tool_calls=calls[:1]))
