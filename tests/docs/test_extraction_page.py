"""The examples of the extraction page show something of each kind that the page promises."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "extraction.md"


def printed(which: int, folder: Path) -> list[str]:
    """Run one of the page's Python blocks and give the lines that it prints."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", blocks[which]],
        cwd=folder, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return done.stdout.splitlines()


def test_the_first_example_shows_all_three_vectors(tmp_path):
    """Broken once: the page's own decision was not found, and nothing was said of it."""
    lines = printed(0, tmp_path)
    for begin in ("file src/store.py", "technology SQLite", "open promise ", "decision "):
        assert any(line.startswith(begin) for line in lines), begin
    assert all(line.strip() for line in lines)


def test_the_example_of_the_graph_shows_neighbours(tmp_path):
    """Broken once: the sentence of the page gave no relation, so the loop printed nothing."""
    lines = printed(2, tmp_path)
    assert lines[0] == "SQLite technology ('garage-7',)"
    assert [line for line in lines[1:-1] if line.endswith((" in", " out"))], lines
    assert lines[-1] == "garage-7 0 1"
