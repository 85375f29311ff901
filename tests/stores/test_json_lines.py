"""The store of the examples keeps what was committed when a write is cut off.

The example itself runs its suite (``tests/docs/test_examples.py``).
"""

import resource
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
JsonLines = runpy.run_path(str(ROOT / "examples" / "own_store.py"))["JsonLines"]


def test_a_line_that_was_cut_off_counts_for_nothing(tmp_path):
    path = tmp_path / "store"
    for number in range(3):
        lines = JsonLines(path)
        lines.write({b"whole": b"%d" % number}, durable=True)
        lines.close()
        with path.open("ab") as file:
            file.write(b'[["whole", ')
    lines = JsonLines(path)
    assert lines.get([b"whole"]) == [b"2"]
    lines.close()


def test_a_write_that_does_not_fit_leaves_nothing_behind(tmp_path):
    """Broken, the rest of a commit that failed is written with the next one, and both count."""
    path = tmp_path / "store"
    lines = JsonLines(path)
    lines.write({b"kept": b"1"}, durable=True)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 100, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            lines.write({b"large": b"x" * 10_000}, durable=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    lines.write({b"later": b"2"}, durable=True)
    lines.close()
    lines = JsonLines(path)
    assert lines.get([b"kept", b"large", b"later"]) == [b"1", None, b"2"]
    lines.close()
