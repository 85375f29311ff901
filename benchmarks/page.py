"""How large a page of ``hiermem view`` is, and how fast a browser shows and drags it.

    HIERMEM_DATA=… python benchmarks/page.py [--sessions 300] [--messages 20000]

Three pages in a headless Chromium: the chat of BEAM 1M, a session of ``--messages`` short messages,
and a memory of ``--sessions`` sessions of 12 to 90 messages of that chat. "Shown" is the time from
the navigation until the session, or the list, is drawn. A frame is what a step of the mouse, of the
budget or of the log, or a typed letter, takes of the page's thread, its layout included; it is time
of the processor, so that other work on the machine does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from hiermem import Memory, Message

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "view"))

import browser

START = datetime(2026, 1, 1, tzinfo=UTC)
#: One step of each kind.
STEPS = {
    "drag over the messages": "$('map').dispatchEvent(new PointerEvent('pointermove',"
    " { buttons: 1, clientX: 120 + 25 * step, clientY: $('canvas').getBoundingClientRect().top +"
    " map.rows.at(-3).y + 9 }))",
    "drag of the budget": "$('budget').value = step % S.contexts.length; refresh()",
    "drag of the log": "$('time').value = S.count * step / 40;"
    " $('time').dispatchEvent(new Event('input'))",
    "typing a word": "$('find').value = 'database'.slice(0, 1 + step % 8); search()",
}
STEPPED = """(async () => {
    for (let step = 0; step < 40; step++) {
        STEP;
        await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    }
    $("find").value = "";
    search();
})()"""


def chat(count: int | None = None) -> list[Message]:
    """Return the messages of BEAM 1M, or ``count`` short ones."""
    if count is not None:
        return [
            Message.user(f"Item {n} weighs {n * 7} kg.", created_at=_at(n)) for n in range(count)
        ]
    path = Path(os.environ["HIERMEM_DATA"]) / "beam" / "beam_1m_3.json"
    read = json.loads(path.read_text("utf-8"))["messages"]
    return [
        Message(role=each["role"], content=each["content"], created_at=_at(n))
        for n, each in enumerate(read)
    ]


def _at(n: int) -> datetime:
    return START + timedelta(minutes=7 * n)


def show(name: str, page: browser.Page, path: Path, text: str, seconds: float) -> None:
    """Print the figures of one page."""
    path.write_text(text, encoding="utf-8")
    print(f"{name}: {len(text) / 1e6:.2f} MB, made in {seconds:.1f} s")
    page.open(path)
    spent = used(page)  # since the navigation, which begins a new count
    shown = page.run("performance.getEntriesByName('shown')[0].startTime")
    paint = page.run("performance.getEntriesByType('paint').at(-1).startTime")
    print(f"  first paint {paint:.0f} ms, shown {shown:.0f} ms, of the processor {spent:.0f} ms")
    if not page.run("S !== null"):
        began = used(page)
        page.run("$('find').value = 'database'; search()")
        page.wait("$('hits').value && !/so far/.test($('hits').value)")
        print(f"  a search of all texts {used(page) - began:.0f} ms")
        began = used(page)
        page.run("(async () => { await open(7); draw(); })()")
        print(f"  a session opens in {used(page) - began:.0f} ms")
        return
    for what, step in STEPS.items():
        began = used(page)
        page.run(STEPPED.replace("STEP", step))
        print(f"  {what}: a frame {(used(page) - began) / 40:.1f} ms")


def used(page: browser.Page) -> float:
    """Return the milliseconds of the processor that the page's thread has used."""
    metrics = page.call("Performance.getMetrics")["metrics"]
    return 1_000 * next(each["value"] for each in metrics if each["name"] == "TaskDuration")


def main() -> None:
    """Make the pages and measure each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sessions", type=int, default=300)
    parser.add_argument("--messages", type=int, default=20_000)
    given = parser.parse_args()
    with TemporaryDirectory() as folder, browser.opened(folder) as page:
        path = Path(folder) / "memory.html"
        page.call("Performance.enable", timeDomain="threadTicks")
        for name, messages in (("BEAM 1M", chat()), ("short", chat(given.messages))):
            with Memory.open(":memory:") as memory:
                session = memory.session("talk")
                session.append(messages)
                session.update()
                begin = time.perf_counter()
                text = session.to_html()
            title = f"{name}, {len(messages):,} messages"
            show(title, page, path, text, time.perf_counter() - begin)
        with Memory.open(":memory:") as memory:
            messages = chat()
            for n in range(given.sessions):
                begin, length = n * 37 % 1_400, 12 + n * 13 % 79
                memory.session(f"talk-{n}", title=f"Talk {n}").append(
                    messages[begin : begin + length]
                )
            memory.update_all()
            begin = time.perf_counter()
            text = memory.to_html()
        show(f"{given.sessions} sessions", page, path, text, time.perf_counter() - begin)


if __name__ == "__main__":
    main()
