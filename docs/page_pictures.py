"""Draw the pictures of ``hiermem view``: the demo's conversation, in a headless Chromium.

Run ``python docs/page_pictures.py``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from hiermem import Memory
from hiermem.cli.demo import bundled

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent / "tests" / "view"))

import browser  # noqa: E402 - it stands with the tests

#: A summary is chosen, and a line of it is followed to its message.
LINE = "pick(S.rows[2][1].at); document.querySelectorAll('#detail button.line')[2].click()"
CONTEXT = "pick(S.rows[3][0].at); show('Context'); document.querySelector('#panel').scrollTop = 170"
PICTURES = {
    "memory-page": ((1280, 860), False, LINE),
    "memory-page-dark": ((1280, 860), True, LINE),
    "memory-page-narrow": ((390, 844), False, "0"),
    "memory-page-context": ((1280, 860), False, CONTEXT),
}


def main() -> None:
    """Write the pictures."""
    with TemporaryDirectory() as folder:
        page = Path(folder) / "memory.html"
        with Memory.open(":memory:") as memory:
            session = memory.session("kanne", title="kanne, a dairy's milk-money system")
            session.append(bundled())
            session.update()
            session.context(4_000)
            page.write_text(session.to_html(), encoding="utf-8")
        with browser.opened(folder) as shown:
            for name, (size, dark, script) in PICTURES.items():
                shown.open(page, size=size, dark=dark)
                shown.run(script)
                shown.frame()
                shown.picture(DOCS / f"{name}.webp")


if __name__ == "__main__":
    main()
