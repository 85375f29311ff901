"""The page of a memory, without a browser: what stands in it, and that nothing leaves its block."""

import asyncio
import base64
import hashlib
import json
import re
import sqlite3
import zlib
from contextlib import closing
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stand_ins import talk as turns

from hiermem import AsyncMemory, BudgetTooSmallError, Memory, Message, ModelError, UsageError
from hiermem.view.data import Lines, Wording
from hiermem.view.page import json_block, page

START = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
#: Stands in every text and every name of a memory, so that it is found wherever text is left.
SECRET = "xylophone"


def talk(count=120, word=SECRET):
    said = (
        "The {word} number {n} cost {p}.50 EUR. Ask Dr. {word} about it on Monday, because the "
        "shop closes at six."
    )
    return turns(
        count, lambda n: said.format(word=word, n=n, p=n * 7), seconds=3 * 3_600,
        name=lambda n: None if n % 2 else f"Ann {word}",
        thread=lambda n: f"side {word}" if n % 10 == 9 else "main",
    )  # fmt: skip


class Page(HTMLParser):
    """The elements of a page, and the texts of those with an id."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.texts, self._now = [], {}, None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self._now = dict(attrs).get("id", tag)
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts[self._now] = self.texts.get(self._now, "") + data

    def value(self, name):
        text = self.texts[name]
        packed = name != "head" and json.loads(self.texts["head"])["packed"]
        return json.loads(zlib.decompress(base64.b64decode(text)) if packed else text)


def spelled(line, data):
    """Return a line of the page's data as text, as the page's script does."""
    if isinstance(line, str):
        return line
    if line[0] < 0:
        return spelled(data["nodes"][-1 - line[0]]["lines"][line[1]], data) + line[2]
    body, text = data["messages"]["text"][line[0]], line[1]
    for begin, length, after in zip(line[2::3], line[3::3], line[4::3], strict=True):
        text += body[begin : begin + length] + after
    return text


@pytest.fixture
def memory(tmp_path):
    with Memory.open(tmp_path / "m.db") as memory:
        session = memory.session("trip", title=f"The {SECRET}", participants=["Ann"])
        session.append(talk())
        session.append(
            Message.user(
                f"From now on, always answer in {SECRET}s.", created_at=START + timedelta(days=30)
            )
        )
        session.pin(3)
        session.update()
        rules = f"# Rules\n\n- `{SECRET}.md`: what was bought\n"
        memory.space(f"shop {SECRET}", rules=rules).note(
            f"A {SECRET} was bought.", agent=f"agent {SECRET}", sources=[("trip", 4)]
        )
        memory.space(f"shop {SECRET}").consolidate()
        yield memory


def test_the_policy_allows_the_pages_own_script_and_style_alone(memory):
    text = memory.session("trip").to_html()
    found = Page(text)
    (policy,) = (attrs["content"] for tag, attrs in found.elements if attrs.get("http-equiv"))
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    for name in ("script", "style"):
        (own,) = re.findall(rf"<{name}>(.*?)</{name}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()
        assert rules[f"{name}-src"] == f"'sha256-{digest}'"
    runs = [attrs for tag, attrs in found.elements if tag == "script" and "type" not in attrs]
    assert runs == [{}], "one script runs, and it is in the page"
    for _tag, attrs in found.elements:
        assert not {
            key for key in attrs if key.startswith("on") or key in ("src", "style", "srcset")
        }
        assert attrs.get("href", "#").startswith("#")


@given(
    st.text()
    | st.sampled_from(["</script>", "<!--<script>", "]]>", "\u2028", "{{data}}", "\\u003c"])
)
def test_no_text_ends_its_block(text):
    value = {"title": text, text: [text]}
    block = json_block(value)
    assert not set("<>&'\u2028\u2029") & set(block)
    assert json.loads(block) == json.loads(json.dumps(value).encode("utf-8", "replace"))
    plain = page({"version": "1", "packed": False, "sessions": []}, {"s0": json_block(value)})
    empty = page({"version": "1", "packed": False, "sessions": []}, {"s0": json_block({})})
    assert Page(plain).elements == Page(empty).elements
    assert Page(plain).value("s0") == json.loads(block)


def test_the_page_holds_every_message_and_every_summary(memory):
    session = memory.session("trip")
    data = Page(session.to_html()).value("s0")
    assert data["messages"]["text"] == [each.content for each in session.messages()]
    made = {each.id: each.text for each in session.summaries() if each.made}
    shown = {
        node["id"]: "\n".join(spelled(line, data) for line in node["lines"])
        for node in data["nodes"]
        if "lines" in node
    }
    assert shown == made
    assert [at for at, *_ in data["pins"]] == [pin.index for pin in session.pins()]
    parts = [
        line for node in data["nodes"] for line in node.get("lines", ()) if isinstance(line, list)
    ]
    assert len(parts) > 50, "extracts are written by what they repeat"


def test_a_context_of_the_page_is_the_one_that_would_be_sent(memory):
    session = memory.session("trip")
    session.context(3_000)
    data = Page(session.to_html()).value("s0")
    assert 3_000 in [each["budget"] for each in data["contexts"] if each["asked"]]
    for planned in data["contexts"]:
        sent = session.context(planned["budget"])
        assert planned["total"] == sent.total_tokens
        assert planned["shared"] == sent.shared_prefix_tokens
        shown = [
            "\n".join(spelled(line, data) for line in block[4]) if len(block) > 4 else None
            for block in planned["blocks"]
        ]
        assert shown == [block.text or None for block in sent.blocks]
        assert [block[2] for block in planned["blocks"]] == [b.span.start for b in sent.blocks]
    assert any(block[0] == "view" for block in data["contexts"][0]["blocks"])


def test_a_question_adds_what_is_recalled(memory):
    session = memory.session("trip")
    data = Page(session.to_html(query="number 42")).value("s0")
    first = data["contexts"][0]
    assert 42 in first["recalled"]
    assert "recall" in [block[0] for block in first["blocks"]]


def test_making_a_page_writes_nothing(memory, tmp_path):
    session = memory.session("trip")
    session.context(3_000)
    with closing(sqlite3.connect(tmp_path / "m.db")) as other, other:
        before = other.execute("PRAGMA data_version").fetchone()
        session.to_html()
        memory.to_html(text=False)
        assert other.execute("PRAGMA data_version").fetchone() == before
        session.context(2_500)
        assert other.execute("PRAGMA data_version").fetchone() != before, "a write is seen so"


def test_without_text_no_word_is_left(memory):
    memory.session(f"id {SECRET}", title=SECRET).append(talk(3))
    for text in (memory.session("trip").to_html(text=False), memory.to_html(text=False)):
        assert SECRET.lower() not in text.lower()
        assert "EUR" not in text
        data = Page(text).value("s0")
        assert data["messages"]["text"][0] == len(talk(1)[0].content)
        assert data["messages"]["tokens"] == [
            each.tokens for each in memory.session("trip").messages()
        ]
        assert data["nodes"][0]["tokens"] == memory.session("trip").summaries()[0].tokens


def test_a_bank_is_shown_with_the_sources_of_its_files(memory):
    (space,) = Page(memory.to_html()).value("bank")
    (file, text), (note,) = space["files"][0], space["notes"]
    assert file == f"{SECRET}.md"
    assert SECRET in text
    assert note["files"] == [file]
    assert note["sources"] == [["trip", 4]]


def test_the_page_of_a_session_holds_nothing_of_another(memory):
    """Broken, a page that is sent to somebody shows him what others said."""
    trip = memory.session("trip")
    for name in ("private-b", "private-c"):
        memory.session(name, title=f"About {name}").append(talk(2))
    fork = trip.fork("private-fork", at=5)
    fork.append(talk(2))
    space = memory.space(f"shop {SECRET}")
    space.note("Said in private-b.", sources=[("private-b", 0)])
    space.note("Said in private-b and here.", sources=[("trip", 4), ("private-b", 1)])
    space.note("private note of no session")
    memory.space("private", rules="- a.md: all").note("private", sources=[("private-c", 1)])
    page = Page(trip.to_html())
    (shown,) = page.value("bank")
    assert [note["sources"] for note in shown["notes"]] == [[["trip", 4]]]
    assert shown["files"] == []
    assert shown["synthesis"] == ""
    for session in (trip, fork):
        page = Page(session.to_html())
        values = [page.value(name) for name in ("head", "s0", "bank")]
        assert "private" not in str(values).replace("private-fork", "")
    for each in (trip, memory.session("private-b")):  # their contexts show one another
        each.join(space.name)
    memory.session("private-b").append(Message.user("Always answer in private verse, please."))
    for query in (None, "private about verse"):
        page = Page(trip.to_html(query=query))
        values = [page.value(name) for name in ("s0", "bank")]
        assert "private" not in str(values)
        assert "verse" not in str(values)
        assert query is not None or "verse" in trip.context(4_000).to_text()
    assert "forked" not in Page(fork.to_html()).value("head")["sessions"][0]
    lines = Page(memory.session("private-b").to_html()).value("bank")[0]["lines"]
    assert "Said in private-b." in [line["text"] for line in lines]


def test_a_degraded_summary_says_why(tmp_path):
    async def broken(request):
        error = ModelError(f"the {SECRET} is broken")
        error.detail = "the key is not accepted"
        raise error

    with Memory.open(tmp_path / "m.db", llm=broken) as memory:
        session = memory.session("trip")
        session.append(talk())
        session.update()
        text = session.to_html(text=False)
        data = Page(text).value("s0")
        wrong = [node for node in data["nodes"] if node.get("degraded")]
        assert wrong
        assert all("the key is not accepted" in node["error"] for node in wrong)
        assert SECRET not in text


def test_a_budget_that_is_too_small_says_what_is_needed(tmp_path):
    with Memory.open(tmp_path / "m.db") as memory:
        session = memory.session("long")
        session.append(
            *[Message.user(f"item {n}") for n in range(40)], Message.user("word " * 9_000)
        )
        first = Page(session.to_html()).value("s0")["contexts"][0]
        try:
            session.context(first["budget"])
            assert "blocks" in first
        except BudgetTooSmallError as error:
            assert first["least"] == error.minimum


def test_a_context_that_held_only_a_system_prompt_is_no_error(tmp_path):
    """Broken, a session has no page any more once such a context was asked for."""
    with Memory.open(tmp_path / "memory.db") as memory:
        session = memory.session("erased")
        session.append(Message.user("A secret."))
        session.erase([0])
        with pytest.raises(BudgetTooSmallError) as refused:
            session.context(1, system="Be brief.")
        session.context(refused.value.minimum, system="Be brief.")
        assert "s0" in Page(session.to_html()).texts


def test_the_asynchronous_page_is_the_same(memory, tmp_path):
    async def made():
        async with AsyncMemory.open(tmp_path / "m.db") as other:
            return await other.session("trip").to_html(), await other.to_html()

    assert asyncio.run(made()) == (memory.session("trip").to_html(), memory.to_html())
    with pytest.raises(UsageError, match="text"):
        memory.session("trip").to_html(text="no")


def test_an_empty_session_and_an_empty_memory_have_a_page(tmp_path):
    with Memory.open(tmp_path / "m.db") as memory:
        assert json.loads(Page(memory.to_html()).texts["head"])["sessions"] == []
        assert Page(memory.session("none").to_html()).value("s0")["messages"]["text"] == []


words = st.sampled_from(
    [
        "One of us went home. ", "It was late; ", "a🙂b is odd. ", "Six euros and 40 cents: ",
        "no\n", "… ",
    ]
)  # fmt: skip
bodies = st.lists(st.lists(words, min_size=1, max_size=9).map("".join), min_size=1, max_size=5)


@given(bodies, st.lists(st.tuples(st.integers(-1, 4), st.text("ab.: …")), max_size=6))
def test_lines_are_spelled_as_they_were(messages, parts):
    texts = [each if max(each) < "\U00010000" else "" for each in messages]
    lines = Lines(texts, Wording())
    rows = [
        (at, lead + "".join(messages[at % len(messages)].split("\n")[::2])) for at, lead in parts
    ]
    sources = [min(at, len(messages) - 1) for at, _ in rows] or [-1]
    text = "\n".join(row for _, row in rows)
    node = lines.of_node(0, text, sources)
    record = lines.of_record(text + " …", sorted({at for at in sources if at >= 0}))
    data = {"messages": {"text": messages}, "nodes": [{"lines": node}]}
    assert "\n".join(spelled(line, data) for line in node) == text
    assert "\n".join(spelled(line, data) for line in record) == text + " …"
