"""The offline models stay as right on labelled statements as the documentation says."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    found = importlib.util.spec_from_file_location("bench_offline", ROOT / "benchmarks/offline.py")
    module = importlib.util.module_from_spec(found)
    # A dataclass looks up its module.
    sys.modules["bench_offline"] = module
    found.loader.exec_module(module)
    return module


#: The least precision and recall.
LEAST = {
    "entities": (0.95, 0.8), "their kinds": (0.85, 0.85),
    "open items": (0.8, 0.85), "strategy": (0.9, 0.9), "places of notes": (0.95, 0.95),
}  # fmt: skip


@pytest.mark.parametrize("part", ["known", "held_out"])
def test_what_is_found_is_right_and_most_of_it_is_found(bench: ModuleType, part: str) -> None:
    """Broken by a rule that finds more than it can stand by, or less than it did."""
    scores = bench.measure(bench.LABELS / part)
    assert scores.keys() == LEAST.keys()
    for name, (precision, recall) in LEAST.items():
        score = scores[name]
        assert score.precision >= precision, (name, score.wrong)
        assert score.recall >= recall, (name, score.missed)


def test_enough_is_labelled_and_no_statement_twice(bench: ModuleType) -> None:
    """Broken if a held-out statement is a known one, which would measure what was fitted."""
    known = bench.measure(bench.LABELS / "known")
    assert min(known[name].items for name in ("entities", "open items", "strategy")) >= 150
    assert known["places of notes"].items >= 150

    def lines(part: str) -> set[str]:
        texts = (path.read_text("utf-8") for path in (bench.LABELS / part).iterdir())
        return {line for text in texts for line in text.splitlines() if len(line) > 40}

    assert not lines("known") & lines("held_out")
