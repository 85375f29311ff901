"""What was spent, and a provider that is down, are told on the screen."""

import pytest
from stand_ins import talk

from hiermem import LLMResponse, Memory, Prices, Usage
from hiermem.models.function import FunctionLLM
from hiermem.testing.llms import write
from hiermem.types import UpdatePlan, UpdateReport

pytest.importorskip("typer")

from commands import run

from hiermem.cli import update


@pytest.fixture
def store(tmp_path):
    """Make a file whose summaries were paid for: 0.005 a call."""
    path = tmp_path / "paid.db"
    llm = FunctionLLM(
        lambda request: LLMResponse(write(request), Usage(1_000, 500)),
        prices=Prices(input=1.0, output=8.0),
    )
    with Memory.open(path, llm=llm) as memory:
        session = memory.session("talk")
        session.append(talk(20, lambda n: f"Step {n} takes {n * 7} seconds. " * 8, created_at=None))
        report = session.update()
        assert report.cost == pytest.approx(0.005 * report.calls)
    return path, report


def test_runs_and_metrics_show_what_was_spent(store):
    path, report = store
    assert f"cost {report.cost:.3g}" in run("runs", "--db", path).stdout
    one = run("runs", "--run", report.run_id, "--db", path).stdout
    assert one.count(" 0.005 ") == report.calls
    metrics = run("metrics", "--db", path).stdout
    assert f"cost spent             {report.cost:.3g}" in metrics


def test_a_report_tells_its_cost_and_when_to_ask_again():
    report = UpdateReport(
        run_id="r", made=3, calls=4, tokens_in=900, tokens_out=100, cost=0.1234,
        stopped="model_down", retry_after=14.6, last_error="no credit left", unknown=2,
    )  # fmt: skip
    told = update._line_of("talk", report)
    assert "unknown 2, calls 4, tokens in 900, tokens out 100, cost 0.123, " in told
    assert "stopped model_down, last error no credit left, retry after 14.60" in told
    plan = UpdatePlan(calls=14, calls_max=28, by_level={1: 14}, cost=0.5, seconds=200.0)
    told = update._line_of("talk", plan)
    assert "calls 14, calls max 28, cost 0.5, seconds 200.00" in told
