"""The examples run as they stand, offline, and do what they say."""

import os
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

#: For each example, what its output must hold: the point that it makes, not its wording.
SAYS = {
    "bank.py": ("ok: 5 notes consolidated", "By hand: demo on Friday at 14:00.",
     "- 2026-03-02: The nightly backup takes 41 minutes. (reviewer)",
     "3 consolidation, 1 notes: risks.md updated", "sound: True"),
    "chat_loop.py": ("cover 100% of 119 messages", "pooled view", "120 messages in {1: 12, 2: 2}"),
    "manager.py": ("layered: 2,", "cut: 2,", "coverage 100%", " 33, ", "made from 10 messages"),
    "own_model.py": ("2 made, 3 calls", "L1.0 by stand-in-1", "- pump 19 runs at 133 rpm"),
    "own_store.py": ("memory.jsonl: ", "Pump 3 was set to 210 rpm", " passed"),
    "provider.py": ("foreseen: 2 calls", "made: 2 with 3 calls", "spent: 0.00",
     "pump 19 to 133 rpm"),
    "tool_calls.py": ("cover 100% of 159 messages", "pump 9: 2909 rpm", "160 messages, 0 of them"),
    "web_handler.py": ("repeated request: True", "400 content has a NUL", "user/ada 52 messages",
     "user/chris 50 messages"),
}  # fmt: skip


@pytest.fixture
def run(scripts, tmp_path):
    """Return what runs an example as a reader would, in a folder of its own, without colours."""
    # Without what would send an example to a provider.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("OPENAI")}
    environment["NO_COLOR"] = "1"
    return lambda name: scripts.run(str(EXAMPLES / name), cwd=tmp_path, env=environment)


def test_every_example_is_held_to_something():
    """A new example without an expectation here would never be looked at again.

    ``test_web_chat`` and ``test_tutorials`` have those of the servers.
    """
    assert {path.name for path in EXAMPLES.glob("*.py")} == {*SAYS, "web_chat.py", "stand_in.py"}


@pytest.mark.parametrize("name", sorted(SAYS))
def test_an_example_runs_and_makes_its_point(name, run, tmp_path):
    """An example that fails, or no longer shows what it is there for, misleads its reader."""
    done = run(name)
    assert done.returncode == 0, done.stdout + done.stderr
    missing = [words for words in SAYS[name] if words not in done.stdout]
    assert not missing, done.stdout
    assert not list(tmp_path.iterdir()), "files were left behind"
    if name == "chat_loop.py":  # it shows a prefix that can be cached: most tokens must be in it
        last = done.stdout.strip().splitlines()[-1]
        sent, fresh = (int(word) for word in last.replace(",", "").split() if word.isdecimal())
        assert fresh < sent / 5
