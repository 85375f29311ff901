"""Users measure their own model with a benchmark; it asks, judges and counts as it says."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from provider import Provider

ROOT = Path(__file__).parents[2]


def talk() -> dict[str, object]:
    turns = [
        {"speaker": "Ada" if n % 2 else "Ben", "dia_id": f"D1:{n + 1}", "text": text}
        for n, text in enumerate(
            f"The parcel number {n} weighs {n * 7 + 3} kilograms and goes to shelf {n}."
            for n in range(120)
        )
    ]
    asked = [
        {"question": f"How heavy is parcel number {n}?", "answer": f"{n * 7 + 3} kilograms",
         "evidence": [f"D1:{n + 1}"], "category": 4}
        for n in (2, 40, 119)
    ]  # fmt: skip
    return {
        "sample_id": "parcels",
        "conversation": {"session_1": turns, "session_1_date_time": "1:00 pm on 8 May, 2023"},
        "qa": asked,
    }


def reply(_: object, spoken: list[tuple[str, str]]) -> str | None:
    """Read one line as a model would, and judge by the words; summaries are left to others."""
    system, text = spoken[0][1], spoken[-1][1]
    if system.startswith("Answer the question"):
        record, _, question = text.rpartition("Question: ")
        number = question.split("number ")[1].rstrip("?")
        found = record.partition(f"parcel number {number} weighs ")[2].partition(" and")[0]
        return found or "not known"
    if system.startswith("Compare the answer"):
        right = text.split("Right answer: ")[1].splitlines()[0]
        return "right" if right in text.split("Answer of the reader: ")[1] else "wrong"
    return None


@pytest.mark.thorough
def test_each_context_is_asked_every_question_and_a_second_run_pays_nothing(tmp_path: Path) -> None:
    (tmp_path / "locomo").mkdir()
    (tmp_path / "locomo" / "locomo_dev5.json").write_text(json.dumps([talk()]), "utf-8")
    with Provider(writer=reply, latency=0) as provider:
        command = [
            sys.executable, str(ROOT / "benchmarks" / "answers.py"), "tiny",
            "--url", provider.openai_url, "--chats", "0", "--budgets", "2000",
            "--keep", str(tmp_path / "kept"),
        ]  # fmt: skip
        env = {**os.environ, "HIERMEM_DATA": str(tmp_path), "OPENAI_API_KEY": provider.key}
        runs = []
        for _ in range(2):
            done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            runs.append((done.stdout, len(provider.served)))
    (first, asked), (second, again) = runs
    assert (second, again) == (first, asked), "the second run asked the model once more"
    counts = {
        line.rsplit(maxsplit=4)[0].strip(): tuple(map(int, line.split()[-3:-1]))
        for line in first.splitlines()[1:]
    }
    assert set(counts) == {
        "window 2,000",
        "extracts 2,000",
        "model 2,000",
        "recall 500",
        "query 2,000",
        "whole",
    }
    assert counts["whole"] == counts["query 2,000"] == counts["recall 500"] == (3, 3)
    assert counts["window 2,000"][0] < 3, "the oldest parcel stands in no window of 2,000 tokens"
