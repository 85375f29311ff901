"""The page in a headless Chromium: it shows what is stored, and does nothing else."""

import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import browser
import pytest

from hiermem import Memory, Message, ToolCall

pytestmark = pytest.mark.skipif(browser.CHROMIUM is None, reason="there is no Chromium here")

START = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
#: A text a line; {0} stands for a call that would open a dialog, {1} for an address.
MARKS = Path(__file__).with_name("hostile.txt").read_bytes().decode().rstrip("\n").split("\n")
#: The elements that the page itself makes.
OWN = set(
    """html head meta title style body a header div p h1 h2 h3 h4 label input output main ol section
    canvas ul li span button aside script article time mark b dl dt dd code table tr th td details
    summary meter strong noscript""".split()  # noqa: SIM905 - easier to read
)


def talk(count, **more):
    return [
        Message(
            role="user" if n % 2 == 0 else "assistant",
            name="Ann" if n % 2 == 0 else None,
            content=f"The order number {n} cost {n * 7}.50 EUR. Dr. Weber asked about it on "
            "Monday, because the shop closes at six.",
            created_at=START + timedelta(hours=3 * n),
            **more,
        )
        for n in range(count)
    ]


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
                const tabs = ["Context", "Summaries", "Pins and bank", "Health"];
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
    first = page.run("document.getElementById('status').textContent")
    assert first.startswith("L")
    page.press("ArrowDown")
    page.press("ArrowRight")
    below = page.run("document.getElementById('status').textContent")
    assert int(below[1]) == int(first[1]) - 1
    assert below.split(":")[0].endswith(".1")
    while page.run("picked.node >= 0"):
        page.press("ArrowDown")
    said = page.run("document.getElementById('status').textContent")
    assert said.startswith("Message ")
    assert page.run("document.querySelector('article.lit') !== null")
    page.press("ArrowUp")
    assert page.run("document.getElementById('status').textContent").startswith("L1.")
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
    wanted = ["skip", "find", "map", "budget", "time", "tab-Messages", "panel"]
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


def test_the_log_is_shown_as_it_was(page, trip):
    page.open(trip)
    page.run("document.getElementById('time').focus()")
    page.press("Home")
    assert page.run("outline().length") == 0
    page.press("End")
    whole = page.run("outline().length")
    assert whole == page.run("S.nodes.length")
    page.press("ArrowLeft")
    assert page.run("S.limit") == 120
    assert "the first 120" in page.run("document.getElementById('time-says').value")


def test_finding_as_one_types(page, trip):
    page.open(trip)
    page.press("/")
    assert page.run("document.activeElement.id") == "find"
    page.type("order number 11")
    said = page.run("document.getElementById('hits').value")
    texts = [each.content for each in talk(120)]
    count = sum(all(word in text for word in ("order", "number", "11")) for text in texts)
    assert said.startswith(f"{count} messages")
    assert page.run("document.querySelectorAll('#panel article').length") >= 11
    assert page.run("document.querySelector('#panel mark').textContent").lower() in (
        "order",
        "number",
        "11",
    )
    page.press("Enter")
    assert page.run("tab") == "Messages"
    assert page.run("picked.message") == 11
    page.run("$('find').value = ''; $('find').dispatchEvent(new Event('input'))")
    assert page.run("document.querySelectorAll('#tab-Found').length") == 0


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
            page.run("S && ['Context', 'Summaries', 'Pins and bank', 'Health'].forEach(show)")
            page.frame()
        assert page.run("$('title').textContent") == "0 sessions"


def test_the_page_fits_a_narrow_window(page, trip):
    page.open(trip, size=(360, 740), dark=True)
    assert page.run("document.documentElement.scrollWidth") <= 360
    paper = page.run("getComputedStyle(document.body).backgroundColor")
    page.open(trip)
    assert page.run("getComputedStyle(document.body).backgroundColor") != paper
