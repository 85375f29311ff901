"""The page in a headless Chromium: it shows what is stored, and does nothing else."""

import json
import os
import random
import re
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import browser
import pytest
from stand_ins import talk as turns

import hiermem.data
from hiermem import HierarchyConfig, Memory, Message, ToolCall
from hiermem.text.terms import stem

pytestmark = pytest.mark.skipif(
    browser.CHROMIUM is None and "HIERMEM_BROWSER_REQUIRED" not in os.environ,
    reason="there is no Chromium here",
)

START = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
#: A text a line; {0} stands for a call that would open a dialog, {1} for an address.
MARKS = Path(__file__).with_name("hostile.txt").read_bytes().decode().rstrip("\n").split("\n")
#: The elements that the page itself makes.
OWN = set(
    """html head meta title style body a header div p h1 h2 h3 h4 label input output main ol section
    canvas ul li span button aside script article time mark b dl dt dd code table tr th td details
    summary meter strong em s pre noscript""".split()  # noqa: SIM905 - easier to read
)


def talk(count, **more):
    return turns(
        count,
        lambda n: f"The order number {n} cost {n * 7}.50 EUR. Dr. Weber asked about it on Monday, "
        "because the shop closes at six.",
        name=lambda n: None if n % 2 else "Ann", seconds=3 * 3_600, **more,
    )  # fmt: skip


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with browser.opened(tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture(autouse=True)
def quiet(request):
    """Nothing that the page shows may raise an error, open a dialog or ask for anything."""
    page = request.getfixturevalue("page")
    for seen in (page.errors, page.dialogs, page.requests):
        seen.clear()
    yield
    page.run("0")
    assert page.errors == []
    assert page.dialogs == []
    assert [url for url in page.requests if not url.startswith("file://")] == []


@pytest.fixture(scope="module")
def trip(tmp_path_factory):
    """A page of one session of 121 messages."""
    path = tmp_path_factory.mktemp("trip") / "trip.html"
    with Memory.open(":memory:") as memory:
        session = memory.session("trip", title="A trip")
        session.append(talk(120), Message.user("From now on, always answer briefly."))
        session.update()
        path.write_text(session.to_html(), encoding="utf-8")
    return path


def test_hostile_texts_do_nothing(page, tmp_path, every):
    asked = []

    class Server(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_error(404)

    server = HTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/taken"
    texts = [mark.format("alert(1)", url) for mark in MARKS]
    assert len(texts) >= 60
    try:
        with Memory.open(":memory:", llm=lambda request: f"{texts[0]} {texts[2]}\n" * 4) as memory:
            for n, text in enumerate(texts):
                name = text.replace("\x01", "")
                session = memory.session(
                    name, title=name, participants=[name[:60]], on_bad_text="replace"
                )
                call = ToolCall(id=f"c{n}", name=name[:60], arguments=name)
                session.append(
                    *talk(4 if n else 90),
                    Message.user(
                        text,
                        name=name[:60],
                        thread=name[:60],
                        created_at=START + timedelta(days=40),
                    ),
                    Message.assistant("", tool_calls=[call], created_at=START + timedelta(days=40)),
                    Message.tool(text, tool_call_id=call.id, created_at=START + timedelta(days=40)),
                )
                session.pin(session.count() - 3)
            memory.session(texts[0]).update()
            space = memory.space(texts[2], rules="# Rules\n\n- `a.md`: what was said\n")
            space.note(
                texts[0], agent=texts[2][:60], category=texts[3][:30], sources=[(texts[0], 0)]
            )
            path = tmp_path / "memory.html"
            path.write_text(memory.to_html(), encoding="utf-8")
        page.open(path)
        walked = page.run(
            """(async () => {
            const frame = (done) => requestAnimationFrame(() => setTimeout(done));
            const pause = () => new Promise(frame);
            const look = (words) => { $("find").value = words; search(); };
            const shown = [];
            for (const [at, one] of HEAD.sessions.entries()) {
                await open(at);
                const tabs = ["Context", "Summaries", "Remembered", "Health"];
                const seen = tabs.filter((_, n) => n % EVERY === at % EVERY);
                for (const tab of [...seen, "Messages"]) {
                    show(tab);
                    await pause();
                }
                S.nodes.forEach((node) => pick(node.at));
                for (let i = 0; i < S.count; i += S.count - 3) go(i);
                const lit = () => document.querySelector("article.lit");
                const until = Date.now() + 60000;
                while (!lit() && Date.now() < until) await pause();
                shown.push(one.id, document.querySelector("article.lit .words").textContent);
                if (at % EVERY) continue;
                look("<script>alert");
                await pause();
                look("");
                await pause();
            }
            location.hash = "";
            await pause();
            await pause();
            look("script");
            await pause();
            const elements = [...document.querySelectorAll("*")].map((one) => one.localName);
            const own = document.querySelectorAll("script:not([type])");
            return [shown, [...new Set(elements)], own.length];
        })()""".replace("EVERY", str(every(4)))
        )
        shown, elements, scripts = walked
        by_id = dict(zip(shown[::2], shown[1::2], strict=True))
        assert by_id == {text.replace("\x01", ""): text for text in texts}
        assert set(elements) <= OWN
        assert scripts == 1
        assert asked == []
    finally:
        server.shutdown()
        server.server_close()


def test_the_keys_walk_the_map(page, trip):
    page.open(trip)
    page.run("document.getElementById('map').focus()")
    page.press("ArrowLeft")
    place = r"/\(L(\d+)\.(\d+)\)/.exec($('status').textContent).slice(1).map(Number)"
    first = page.run(place)
    page.press("ArrowDown")
    page.press("ArrowRight")
    assert page.run(place) == [first[0] - 1, 1]
    while page.run("picked.node >= 0"):
        page.press("ArrowDown")
    said = page.run("document.getElementById('status').textContent")
    assert said.startswith("Message ")
    assert page.run("document.querySelector('article.lit') !== null")
    page.press("ArrowUp")
    assert page.run(place)[0] == 1
    page.press("+")
    assert page.run("S.window[1] - S.window[0] < S.count")
    page.press("0")
    assert page.run("S.window[1] - S.window[0] === S.count")
    page.press("Enter")
    assert page.run("document.activeElement.id") == "detail"


def test_the_mouse_goes_over_the_map(page, trip):
    page.open(trip)
    top = page.run("$('canvas').getBoundingClientRect().top")
    rows = page.run("map.rows.map((row) => [row.kind, row.y + row.h / 2])")
    height = {kind: top + y for kind, y in rows}
    page.mouse("Moved", 600, height["level"])
    pointed = page.run("$('status').textContent")
    page.mouse("Pressed", 600, height["level"], buttons=1)
    page.mouse("Released", 600, height["level"])
    assert pointed.startswith(page.run("document.querySelector('#detail h2').textContent"))
    page.mouse("Pressed", 300, height["messages"], buttons=1)
    for x in (400, 700, 1000):
        page.mouse("Moved", x, height["messages"], buttons=1)
    page.mouse("Released", 1000, height["messages"])
    page.wait("document.querySelector('article.lit h4').parentNode.textContent.includes('· ')")
    share = (1000 - page.run("28 + map.gutter")) / page.run("map.width")
    page.wait(f"Math.abs(picked.message - S.count * {share}) < 2")
    page.wait("Number(document.querySelector('article.lit').ariaPosInSet) === picked.message + 1")


def test_every_control_is_reached_by_tab_and_has_a_name(page, trip):
    page.open(trip)
    page.run("document.activeElement.blur()")
    reached = []
    for _ in range(12):
        page.press("Tab")
        reached.append(page.run("document.activeElement.id || document.activeElement.className"))
    wanted = ["skip", "find", "map", "budget", "tab-Messages", "panel"]
    assert [each for each in reached if each in wanted] == wanted
    page.call("Accessibility.enable")
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    nameless = [
        node["role"]["value"]
        for node in nodes
        if not node["ignored"]
        and any(
            p["name"] == "focusable" and p["value"]["value"] for p in node.get("properties", ())
        )
        and node["role"]["value"] != "RootWebArea"
        and not node.get("name", {}).get("value")
    ]
    assert nameless == []


def test_the_tabs_go_by_arrows(page, trip):
    page.open(trip)
    page.run("document.querySelector('[role=tab]').focus()")
    page.press("ArrowRight")
    assert page.run("document.activeElement.textContent") == "Context"
    assert page.run("document.activeElement.getAttribute('aria-selected')") == "true"
    page.press("ArrowLeft")
    page.press("ArrowLeft")
    assert page.run("document.activeElement.textContent") == "Health"


def test_the_budget_shows_the_context_as_it_would_be_sent(page, trip):
    page.open(trip)
    page.run("document.getElementById('budget').focus()")
    page.press("Home")
    small = page.run("document.getElementById('budget-says').value")
    assert small.startswith("2,000 tokens")
    counts = page.run(
        "[...S.kinds].map((kind) => KINDS[kind]).filter((kind) => kind === 'verbatim').length"
    )
    page.run("show('Context')")
    page.wait("$('panel').textContent.includes('View of older messages')")
    page.press("ArrowRight")
    assert page.run("document.getElementById('budget-says').value").startswith("4,000 tokens")
    more = page.run("[...S.kinds].filter((kind) => kind === 3).length")
    assert more > counts
    page.press("End")
    assert "the whole history" in page.run(
        "document.getElementById('budget').getAttribute('aria-valuetext')"
    )


def test_finding_as_one_types(page, trip):
    """Broken, messages stand behind summaries, or the found words are not seen."""
    page.open(trip)
    page.press("/")
    assert page.run("document.activeElement.id") == "find"
    page.type("orders Weber 11")
    rows = page.run("[...$('panel').querySelectorAll('.hit')].map((one) => one.innerText)")
    wanted = [n for n, each in enumerate(talk(120)) if re.search(r"\b11", each.content)]
    said = page.run("document.getElementById('hits').value")
    assert said.startswith(f"{len(wanted)} messages")
    found = [re.search(r"message (\d+)", row) for row in rows[: len(wanted)]]
    assert [int(each[1]) for each in found] == wanted
    assert all("Summary of" in row for row in rows[len(wanted) :])
    marks = page.run(
        "[...$('panel').querySelectorAll('.hit')].map((row) =>"
        " [...row.querySelectorAll('mark')].map((one) => one.textContent))"
    )
    assert all({"order", "Weber"} <= set(each) for each in marks[: len(wanted)])
    page.press("Enter")
    assert page.run("tab") == "Messages"
    assert page.run("picked.message") == wanted[0]
    page.run("$('find').value = ''; $('find').dispatchEvent(new Event('input'))")
    assert page.run("document.querySelectorAll('#tab-Found').length") == 0


def test_what_the_command_finds_is_found(page, tmp_path):
    """Broken, a word in another form, a question or an accent finds nothing on the page."""
    said = ["My passport expires on 4 May.", "The cities of Málaga", "We hoped to adopt a dog."]
    asked = {
        "passports expire": 0, "When does my passport expire?": 0, "city malaga": 1,
        "hoping for an adoption": 2, "passport renewal": 0,
    }  # fmt: skip
    with Memory.open(":memory:") as memory:
        session = memory.session("trip")
        session.append(Message.user(text) for text in [*said, "Nothing of the kind."])
        best = {question: memory.search(question)[0].index for question in asked}
        path = tmp_path / "trip.html"
        path.write_text(session.to_html(), encoding="utf-8")
    assert best == asked
    page.open(path)
    for question, index in asked.items():
        page.run(f"$('find').value = {question!r}; search()")
        assert page.run("find.messages") == [index], question
    assert "None has all of these words" in page.run("$('panel').textContent")


def test_words_have_the_stems_of_the_search(page, trip):
    """Broken, the page and the command find other forms of a word."""
    lists = Path(hiermem.data.__file__).parent
    bare = set(re.findall("[a-z]{3,}", (lists / "thesaurus.txt").read_text("utf-8")))
    endings = ("", "s", "ed", "ing", "ation", "izer", "ably", "bly", "logy", "fulness", "y", "ies",
               "ical", "ement", "sses", "ousli")  # fmt: skip
    known = sorted(word + ending for word in bare for ending in endings)
    assert len(known) > 5_000
    page.open(trip)
    stems = page.run(f"{json.dumps(known)}.map(stem)")
    wrong = [each for each in zip(known, stems, strict=True) if stem(each[0]) != each[1]]
    assert wrong == []


#: What must not be read on a page: a value that is none.
NONE = re.compile(r"undefined|null|NaN|\[object|Invalid|Infinity")
#: Gathers all text of the page, pane by pane, with every summary and some messages selected.
READ = """(() => {
    // What is not drawn has no inner text.
    document.styleSheets[0].insertRule("* { content-visibility: visible !important }");
    const texts = [], stray = [];
    const look = () => {
        texts.push(document.body.innerText);
        for (const box of [$("panel"), $("detail"), $("list"), $("banks")])
            for (const one of box.childNodes) if (one.nodeType === 3) stray.push(one.data);
        for (const one of document.querySelectorAll("[title], [aria-label], [aria-valuetext]"))
            for (const { value } of one.attributes) texts.push(value);
    };
    look();
    for (let at = 0; S && at < S.contexts.length; at++) {
        $("budget").value = at;
        refresh();
        for (const tab of Object.keys(TABS)) { show(tab); look(); }
        if (at) continue;
        for (const node of S.nodes) { pick(node.at); look(); }
        for (let i = 0; i < S.count; i += 9) { go(i); look(); }
    }
    return [[...new Set(texts)], stray];
})()"""


@pytest.mark.parametrize("with_text", [True, False])
def test_no_pane_shows_a_value_that_is_none(page, tmp_path, with_text):
    """Broken, a person reads "undefined" or "0" where nothing should stand."""

    def failing(request):
        raise RuntimeError("the server is down")

    pages = []
    with Memory.open(tmp_path / "m.db") as memory:
        ada = memory.space("ada", person="Ada")
        session = memory.session("trip", space="ada", metadata={"source": "whatsapp"})
        session.append(talk(60), Message.user("From now on, always answer briefly."))
        ada.note("Likes tea.", sources=[("trip", 0)])
        ada.note("Likes rain.")
        session.update()
        session.context(900)
        session.append(talk(9))
        memory.session("bare", space="ada").append(Message.user("One."))
        ada.consolidate()
        ada.note("Likes snow.", sources=[("trip", 2)])
        pages += [memory.to_html(text=with_text), session.to_html(text=with_text)]
        pages.append(session.to_html(text=with_text, query="order 11"))
    with Memory.open(":memory:", llm=failing) as memory:
        memory.session("x").append(talk(60))
        memory.session("x").update()
        pages.append(memory.to_html(text=with_text))
    for number, text in enumerate(pages):
        path = tmp_path / f"{number}.html"
        path.write_text(text, encoding="utf-8")
        page.open(path)
        seen = [page.run(READ)]
        for at in range(page.run("HEAD.sessions.length")):
            page.run(f"open({at})")
            seen.append(page.run(READ))
        for texts, stray in seen:
            assert [each for each in texts if NONE.search(each)] == []
            assert stray == [], "a text stands in a pane without an element of its own"


MARKDOWN = r"""# A plan

Some **bold _and_ slanted** text, `code <b>`, ~~gone~~ and snake_case_names, 2 * 3 * 4.

- one
  - two **2**
1. first
2) second

> quoted
> twice

| city | km |
|------|---:|
| Porto | 313 |
| | 5 |

```python
print("**not bold**")
```
A [link](https://example.org/?a=1) and [another](javascript:alert).
***
<img src=x onerror=alert(1)>
- [ ] open
| no | table
"""


def test_markdown_is_shown_and_nothing_of_a_text_is_lost(page, tmp_path):
    """Broken, marks stand raw, or a text differs from the one that was stored."""
    lines = MARKDOWN.split("\n")
    draw = random.Random(7)
    texts = [MARKDOWN]
    for _ in range(150):
        parts = draw.choices([*lines, "**", "`", "|", "[", "](", "\n", "*a", "_ b", "```"], k=9)
        texts.append(draw.choice(["", "\n", " "]).join(parts) or "x")
    with Memory.open(":memory:") as memory:
        session = memory.session("marks")
        session.append(Message.user(text) for text in texts)
        path = tmp_path / "marks.html"
        path.write_text(session.to_html(), encoding="utf-8")
    page.open(path)
    shown = page.run(
        "S.messages.text.map((_, i) => message(i).querySelector('.words').textContent)"
    )
    assert shown == texts
    page.run("go(0)")
    page.frame()
    read = page.run("document.querySelector('article.lit .words').innerText")
    for raw in ("**bold", "|---", "# A plan", "~~", "`code", "- one", "1. first", "](", "```"):
        assert raw not in read
    for kept in ('print("**not bold**")', "snake_case_names, 2 * 3 * 4", "<img src=x", "| no |"):
        assert kept in read
    inside = "[...document.querySelectorAll('article.lit .words {}')].map((one) => one.innerText)"
    assert page.run(inside.format("strong")) == ["bold and slanted", "2"]
    assert page.run(inside.format("em")) == ["and"]
    rows = page.run(inside.format("tr:not(.mk)"))
    assert [row.split() for row in rows] == [["city", "km"], ["Porto", "313"], ["5"]]
    assert page.run("document.querySelectorAll('article.lit a').length") == 0


def test_a_space_stands_in_the_page(page, tmp_path):
    """Broken, what is known of a person is not seen, or its sources lead nowhere."""
    with Memory.open(":memory:") as memory:
        ada = memory.space("ada", person="Ada")
        for name in ("january", "march"):
            session = memory.session(name, title=f"In {name}", space="ada")
            session.append(talk(4), Message.user("Always answer in metric units."))
        memory.session("alone").append(talk(2))
        ada.note("Lives in Bristol.", sources=[("march", 2)])
        path = tmp_path / "space.html"
        path.write_text(memory.to_html(), encoding="utf-8")
    page.open(path)
    shown = page.run("$('banks').innerText")
    assert "Known in the space “ada”" in shown
    assert "last on " in shown.partition("Conversations")[2], "a conversation is not since its end"
    assert shown.count("Always answer in metric units.") == 1, "equal wishes stand once"
    assert "In march, 4" in shown
    page.run(
        "[...$('banks').querySelectorAll('button')]"
        ".find((one) => one.textContent === 'In march, 2').click()"
    )
    page.wait("S && picked.message === 2")
    assert page.run("$('title').textContent") == "In march"
    page.run("show('Remembered')")
    assert "Lives in Bristol." in page.run("$('panel').innerText")
    page.run("open(HEAD.sessions.findIndex((one) => one.id === 'alone'))")
    page.wait("S && S.entry.id === 'alone'")
    page.run("show('Remembered')")
    assert "Bristol" not in page.run("$('panel').innerText"), "it is not in the space"


def test_equal_wishes_stand_once(page, tmp_path):
    """Broken, the same sentence fills the first lines of a context, and the list of wishes."""
    wish = "Please always give distances in kilometres."
    with Memory.open(":memory:") as memory:
        session = memory.session("walks")
        for _ in range(4):
            session.append(Message.user(wish, name="Ann"), talk(20))
        session.update()
        assert wish in session.context(2_000).to_text()
        path = tmp_path / "walks.html"
        path.write_text(session.to_html(), encoding="utf-8")
    page.open(path)
    page.run("show('Remembered')")
    assert page.run("$('panel').innerText").count(wish) == 1
    page.run("$('budget').value = 0; refresh(); show('Context')")
    shown = page.run("document.querySelector('#panel .record').textContent")
    assert shown.count(wish) == 1
    assert "also asked 1 time in this record" in shown


def test_sessions_are_listed_by_their_source(page, tmp_path):
    with Memory.open(":memory:") as memory:
        for name, source in (("a", "chatgpt"), ("b", "whatsapp"), ("c", "whatsapp"), ("d", "")):
            labels = {"source": source} if source else {}
            memory.session(name, metadata=labels).append(talk(2))
        path = tmp_path / "sources.html"
        path.write_text(memory.to_html(), encoding="utf-8")
    page.open(path)
    listed = "[...document.querySelectorAll('#sessions strong')].map((one) => one.textContent)"
    filters = page.run("$('sources').innerText").split()
    assert filters == ["All", "4", "WhatsApp", "2", "ChatGPT", "1"]
    page.run("$('sources').children[1].click()")
    assert sorted(page.run(listed)) == ["b", "c"]
    page.run("$('sources').children[0].click()")
    assert sorted(page.run(listed)) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("size", [(1280, 900), (390, 844)])
def test_the_text_has_most_of_the_window(page, tmp_path, size):
    """Broken, the map of a long session leaves no room for its text, or a tab is cut off."""
    levels = HierarchyConfig().levels
    levels = [each.model_copy(update={"fan_in": 2, "max_size": None}) for each in levels]
    config = HierarchyConfig.by_tokens(target=40, max_messages=2, levels=levels)
    with Memory.open(":memory:", config=config) as memory:
        session = memory.session("deep", title="A title of some length", participants=["Ann", "Bo"])
        session.append(talk(400))
        session.update()
        path = tmp_path / "deep.html"
        path.write_text(session.to_html(), encoding="utf-8")
    page.open(path, size=size)
    assert page.run("S.rows.length - 1") >= 7
    assert page.run("$('top').getBoundingClientRect().bottom") <= size[1] / 3
    page.run("$('find').value = 'order'; search()")
    boxes = page.run("[...$('tabs').children].map((one) => one.getBoundingClientRect().right)")
    assert len(boxes) == 6
    assert max(boxes) <= size[0]
    assert page.run("document.documentElement.scrollWidth") <= size[0]


def test_the_axis_names_each_year(page, tmp_path):
    with Memory.open(":memory:") as memory:
        session = memory.session("years")
        days = [datetime(2024, 12, 1, tzinfo=UTC) + timedelta(days=9 * n) for n in range(60)]
        session.append(Message.user("word " * 20, created_at=at) for at in days)
        path = tmp_path / "years.html"
        path.write_text(session.to_html(), encoding="utf-8")
    page.open(path)
    labels = page.run("""(() => {
        const drawn = [], whole = CanvasRenderingContext2D.prototype.fillText;
        CanvasRenderingContext2D.prototype.fillText = (text) => drawn.push(text);
        drawDays($("canvas").getContext("2d"), map.rows.at(-1), "black", "grey");
        CanvasRenderingContext2D.prototype.fillText = whole;
        return drawn;
    })()""")
    for year in ("2024", "2025", "2026"):
        assert sum(label.endswith(year) for label in labels) == 1, labels


def test_a_line_of_a_summary_leads_to_its_message(page, trip):
    page.open(trip)
    found = page.run("""(() => {
        const out = [];
        for (const node of S.nodes.filter((one) => one.lines)) {
            pick(node.at);
            node.lines.forEach((line, at) => {
                if (!Array.isArray(line)) return;
                const button = [...document.querySelectorAll("#detail .line")][at];
                button.click();
                const lit = document.querySelector("article.lit");
                const shown = Number(lit.getAttribute("aria-posinset")) - 1;
                const marks = lit.querySelectorAll(".source").length;
                out.push([line[0], shown, marks, button.getAttribute("aria-pressed")]);
            });
        }
        return out;
    })()""")
    assert len(found) > 20
    for source, shown, marks, pressed in found:
        assert shown == source
        assert marks > 0
        assert pressed == "true"


def test_a_page_of_many_sessions_is_searched_and_walked(page, tmp_path):
    with Memory.open(":memory:") as memory:
        for n in range(130):
            memory.session(f"s{n:03}", title=f"Talk {n}").append(
                talk(3), Message.user(f"the invoice{n} is lost")
            )
        memory.session("s005").fork("s005-b", at=2, title="Talk 5, again")
        path = tmp_path / "memory.html"
        path.write_text(memory.to_html(), encoding="utf-8")
    page.open(path)
    assert page.run("document.getElementById('title').textContent") == "131 sessions"
    rows = page.run(
        "[...document.querySelectorAll('#sessions strong')].map((one) => one.textContent)"
    )
    assert len(rows) < 131, "the list is made where it is seen"
    order = page.run("HEAD.order.map((at) => HEAD.sessions[at].id)")
    assert order.index("s005-b") == order.index("s005") + 1, "a fork stands under its session"
    page.run("document.getElementById('find').focus()")
    page.type("invoice42")
    page.wait(
        "document.querySelectorAll('#sessions li').length === 1 && !/so far/.test($('hits').value)"
    )
    row = page.run("document.querySelector('#sessions button').innerText")
    assert "the invoice42 is lost" in row, "the line that was found is shown"
    page.run("document.querySelector('#sessions button').click()")
    page.wait("!document.getElementById('one').hidden && S !== null")
    assert page.run("document.getElementById('title').textContent") == "Talk 42"
    assert page.run("document.querySelector('#panel mark').textContent") == "invoice42"
    page.run("history.back()")
    page.wait("$('one').hidden && !!document.querySelector('#sessions button')")
    page.run("document.querySelector('#sessions button').click()")
    page.wait("!document.getElementById('one').hidden && S !== null")
    page.run("document.querySelector('#brand button').click()")
    page.wait("document.getElementById('one').hidden")


def test_a_long_session_is_made_where_it_is_seen(page, tmp_path):
    with Memory.open(":memory:") as memory:
        session = memory.session("long")
        session.append(talk(2_000))
        path = tmp_path / "long.html"
        path.write_text(session.to_html(), encoding="utf-8")
    page.open(path)
    assert page.run("document.querySelectorAll('article').length") < 300
    page.run("go(1321)")
    page.wait("document.querySelector('article.lit')?.getBoundingClientRect().top > 0")
    lit = page.run("document.querySelector('article.lit').textContent")
    assert "The order number 1321 cost" in lit
    for at in (0, 1_999, 1_000, 10):
        page.run(f"go({at})")
        page.frame()
    assert page.run("document.querySelectorAll('article').length") < 400


def test_an_empty_session_and_an_empty_memory_are_shown(page, tmp_path):
    with Memory.open(":memory:") as memory:
        path = tmp_path / "none.html"
        for text in (memory.session("none").to_html(), memory.to_html()):
            path.write_text(text, encoding="utf-8")
            page.open(path)
            page.run("S && ['Context', 'Summaries', 'Remembered', 'Health'].forEach(show)")
            page.frame()
        assert page.run("$('title').textContent") == "0 sessions"


def test_the_page_fits_a_narrow_window(page, trip):
    page.open(trip, size=(360, 740), dark=True)
    assert page.run("document.documentElement.scrollWidth") <= 360
    paper = page.run("getComputedStyle(document.body).backgroundColor")
    page.open(trip)
    assert page.run("getComputedStyle(document.body).backgroundColor") != paper
