"""The command ``work``: a process that makes what any tenant's sessions lack, until it is ended."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Annotated, Final

import typer

from hiermem import UpdatePolicy, WorkerStatus
from hiermem.cli.models import (
    Concurrency,
    MaxCalls,
    MaxTokens,
    Model,
    ModelUrl,
    ModelWindow,
    Retries,
    Temperature,
    Timeout,
    calls_of,
    model_of,
)
from hiermem.cli.options import DB, Db, open_existing, shown
from hiermem.cli.output import Json, exit_code, hint, print_json
from hiermem.cli.screen import clean, out, plural

app = typer.Typer()
#: Seconds between two looks at whether a cap has stopped the worker.
_LOOK: Final = 0.2
#: A cap of the whole command.
_CAPS: Final = ("max_calls", "max_tokens", "deadline")


@app.command()
def work(
    *,
    db: Db = DB,
    once: Annotated[
        bool, typer.Option("--once", help="End when nothing is left that can be made now.")
    ] = False,
    poll: Annotated[float, typer.Option(min=0.05, help="Seconds between two looks.")] = 1.0,
    max_calls: MaxCalls = None,
    max_tokens: MaxTokens = None,
    model: Model = None,
    model_url: ModelUrl = None,
    model_window: ModelWindow = None,
    concurrency: Concurrency = None,
    timeout: Timeout = None,
    retries: Retries = None,
    temperature: Temperature = None,
    as_json: Json = False,
) -> None:
    """Make the summaries of all tenants, as they come up, until it is interrupted.

    Any number of these processes share the work, on any number of machines.
    """
    llm = model_of(
        model, url=model_url, window=model_window, timeout=timeout, temperature=temperature
    )
    policy = UpdatePolicy(**calls_of(timeout=timeout, retries=retries, concurrency=concurrency))
    with open_existing(db, "default", llm, update_policy=policy) as memory:
        worker = memory.worker(
            max_calls=max_calls, max_tokens=max_tokens, poll=poll, all_tenants=True
        )
        try:
            with worker:
                if once:
                    worker.drain()
                else:
                    hint(f"working for all tenants of {clean(shown(db))}; end it with Ctrl-C")
                    while worker.status.stopped not in _CAPS:
                        time.sleep(_LOOK)
        except KeyboardInterrupt:  # SIGTERM raises it too; what was in flight is committed
            if once:
                raise
        status = worker.status
    if as_json:
        print_json(asdict(status))
    else:
        _print(status)
    if once or status.stopped is not None:
        raise typer.Exit(exit_code(status))


def _print(status: WorkerStatus) -> None:
    parts = [f"made {plural(status.made, 'summary', 'summaries')}"]
    for count, what in (
        (status.reused, "reused"),
        (status.degraded, "degraded"),
        (status.failed, "failed"),
        (status.unknown, "cut-off calls with unknown outcome"),
    ):
        if count:
            parts.append(f"{count:,} {what}")
    stopped = f" Stopped by {clean(status.stopped)}." if status.stopped else ""
    line = f"{', '.join(parts)} in {plural(status.turns, 'turn')}.{stopped}"
    out().print(line, soft_wrap=True)
