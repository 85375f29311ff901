"""What a notebook shows of a value: one line, a strip and a table, in which nothing is mark-up."""

import copy
import pickle
import re
from datetime import UTC, datetime
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiermem import Hit, Memory, Message
from hiermem.types import Span

HOSTILE = "<script>alert(1)</script> ' onload='x \"><img src=x>"


@pytest.fixture(scope="module")
def seen():
    """Values of one session whose every message is mark-up."""
    with Memory.open(":memory:") as memory:
        session = memory.session("trip", title=HOSTILE)
        session.append(
            Message.user(f"{HOSTILE} Reading {n}: pump {n % 7} ran at {2_900 + n} rpm. " * 4)
            for n in range(200)
        )
        session.update()
        context = session.context(2_000, query="reading 33")
        yield {
            "session": session,
            "context": context,
            "recall": context.evidence,
            "tree": session.forest()[0],
            "hit": session.search("reading 33", 1)[0],
            "status": session.status(),
            "message": session.messages(0, 1)[0],
        }


class Tags(HTMLParser):
    """Collects the tags of a page, and the columns of its bars."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.bars = set(), []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        assert {name for name, _ in attrs} <= {"style", "title"}
        if tag == "span":
            self.bars.append(re.findall(r"(?:left|width):([\d.]+)%", dict(attrs)["style"]))


@pytest.mark.parametrize(
    "name", ["session", "context", "recall", "tree", "hit", "status", "message"]
)
def test_what_a_notebook_shows_is_escaped_and_small(seen, name):
    """Broken, a message runs as a script in the notebook of whoever looks at it."""
    page = Tags(seen[name]._repr_html_())
    assert page.tags <= {"div", "b", "code", "span", "table", "tr", "th", "td", "pre"}
    assert len(seen[name]._repr_html_()) < 40_000
    assert len(repr(seen[name])) <= 170
    for left, width in page.bars:
        assert 0 <= float(left) <= float(left) + float(width) <= 100.2


def test_a_context_and_a_tree_are_drawn_over_all_their_messages(seen):
    """Broken, the strip leaves a part of the history blank that the context covers."""
    for name in ("context", "tree"):
        value = seen[name]
        bars = Tags(value._repr_html_()).bars
        covered = set()
        for left, width in bars:
            covered |= set(range(round(float(left)), round(float(left) + float(width)) + 1))
        assert covered >= set(range(1, 100)), name
    assert "pooled view" in seen["context"]._repr_html_()
    assert repr(seen["context"]).startswith("<ContextSelection session_id='trip' total_tokens=")


@given(text=st.text(), score=st.floats(0, 1))
def test_a_line_stays_a_line_whatever_a_text_holds(text, score):
    at = datetime(2026, 3, 1, tzinfo=UTC)
    hit = Hit("s", "message", 0, Span(0, 1), score, text, 1, (at, at), "main")
    assert len(repr(hit).splitlines()) == 1
    assert len(repr(hit)) <= 300  # escapes of what cannot be printed are longer
    assert Tags(hit._repr_html_()).tags <= {"div", "b", "table", "tr", "th", "td", "pre"}


def test_a_value_that_is_shown_in_short_is_whole(seen):
    for name in ("context", "recall", "tree", "hit", "message"):
        value = seen[name]
        assert pickle.loads(pickle.dumps(value)) == value
        assert copy.deepcopy(value) == value


def test_a_line_shows_values_and_not_how_many_they_are():
    """Broken, ``indices=2`` stands for messages 4 and 5, and message 0 has no number."""
    with Memory.open(":memory:") as memory:
        session = memory.session("a")
        session.append(Message.user(f"Pump {n} ran.") for n in range(20))
        assert "index=0" in repr(session.edit(0, "Pump 0 stood."))
        assert "index=0" in repr(session.pin(0)) + repr(session.pins())
        assert "indices=(4, 5)" in repr(session.erase([4, 5]))
        assert "indices=9 items" in repr(session.erase(range(6, 15)))
        erased, live = session.messages(5, 6) + session.messages(19, 20)
        assert "state='erased'" in repr(erased)
        assert "state" not in repr(live)


@pytest.mark.parametrize("kind", [Memory, Hit])
def test_what_was_not_made_to_its_end_has_a_line_too(kind):
    """Broken, a report of a memory that could not be opened ends in another error."""
    assert repr(kind.__new__(kind)) == f"<{kind.__name__}>"


def test_a_report_of_no_work_says_so():
    """Broken, a newcomer's second update prints a bare name, as if something had failed."""
    with Memory.open(":memory:") as memory:
        memory.session("short").append(Message.user("Hello."))
        memory.update_all()
        assert repr(memory.update_all()) == "<BatchReport nothing to do>"
        assert repr(memory.session("short").update()) == "<UpdateReport nothing to do>"
