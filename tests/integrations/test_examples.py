"""The examples of the bridges run as they stand, against the released frameworks, offline."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "integrations"

#: For each example, the package that it needs and what its output must hold.
SAYS = {
    "langchain_middleware.py": ("langchain", ("cover 100% of 400 messages",
     "400 messages kept, 100 tool results", "pump 7 runs at"), 3_500),
    "openai_agents_session.py": ("agents", ("cover 100% of 400 messages",
     "400 messages kept, 100 tool results", "pump 7 runs at"), 3_500),
    "pydantic_ai_capability.py": ("pydantic_ai", ("cover 100% of 400 messages",
     "400 messages kept, 100 tool results", "pump 7 runs at"), 3_500),
}  # fmt: skip


def test_every_example_is_held_to_something():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SAYS)


@pytest.mark.parametrize("name", sorted(SAYS))
def test_a_hundred_turns_with_a_restart_lose_nothing_and_stay_within_bounds(name, tmp_path):
    """Broken if a bridge lost a message or a tool's result, or sent more and more."""
    package, says, most = SAYS[name]
    pytest.importorskip(package)
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not [words for words in says if words not in done.stdout], done.stdout
    line = next(line for line in done.stdout.splitlines() if line.startswith("at most "))
    assert int(line.split()[2].replace(",", "")) < most, line
    assert not list(tmp_path.iterdir()), "files were left behind"


def test_the_page_on_the_bridges_says_what_runs(tmp_path):
    """Broken if a reader copied a block that fails."""
    for package in ("agents", "langchain", "pydantic_ai", "opentelemetry"):
        pytest.importorskip(package)
    blocks = ROOT / "tests" / "docs" / "blocks.py"
    page = ROOT / "docs" / "integrations.md"
    done = subprocess.run(
        [sys.executable, str(blocks), str(page)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
