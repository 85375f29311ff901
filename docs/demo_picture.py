"""Draw the picture of the README: what ``hiermem demo`` prints, from the context to the details.

Run ``python docs/demo_picture.py docs/demo.svg``.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH = 100
#: A terminal as SVG, in the fonts that a reader has: a picture must load nothing.
FORMAT = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" \
xmlns="http://www.w3.org/2000/svg" role="img">
<title>hiermem demo</title>
<style>.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, monospace; \
font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-family: system-ui, sans-serif; }}
{styles}</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" \
height="{terminal_height}"/></clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""


def printed() -> list[str]:
    """Return the lines of the demo that show the context, with their colours."""
    program = "from hiermem.cli.app import app; app()"
    run = subprocess.run(  # noqa: S603 - the program and its arguments stand here
        [sys.executable, "-c", program, "demo"],
        env={**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(WIDTH), "TERM": "xterm-256color"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    lines = run.stdout.replace("\r", "").split("\n")
    start = max(n for n, line in enumerate(lines) if "3. Asked for a context" in line)
    stop = next(n for n, line in enumerate(lines) if n > start and "4. Searched" in line)
    kept, skipping = [], False
    for line in lines[start:stop]:
        # What a model reads stands in the documentation, not in the picture.
        skipping = skipping and "Saved against" not in line
        skipping = skipping or "The oldest part of it" in line
        if not skipping:
            kept.append(line)
    return kept


def main() -> None:
    """Write the picture."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi("\n".join(printed())))
    svg = console.export_svg(title="hiermem demo", code_format=FORMAT, unique_id="demo")
    Path(sys.argv[1]).write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
