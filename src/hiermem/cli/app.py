"""The command line: every command, in the groups and the order of the help.

A command prints its result on standard output and everything else (progress, hints, errors) on
standard error, so that its result can be piped. ``output`` has the exit codes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

import hiermem
from hiermem.cli import (
    bank,
    demo,
    extract,
    import_cmd,
    maintenance,
    mcp_cmd,
    search_cmd,
    sessions,
    show,
    update,
    view,
)
from hiermem.cli.options import declared
from hiermem.cli.output import Commands
from hiermem.cli.screen import out, replace_unencodable

app = typer.Typer(
    name="hiermem",
    cls=Commands,
    help="Unbounded conversation memory: messages, a tree of summaries, contexts that fit.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
of_bank = typer.Typer(
    no_args_is_help=True,
    help="Notes, and the bank of files that they are consolidated into.",
    rich_markup_mode=None,
)
#: The commands, in the groups of the help. A command is called as its function is.
_COMMANDS: dict[str, list[Callable[..., None]]] = {
    "Start": [demo.demo, import_cmd.import_, update.update, mcp_cmd.mcp],
    "Read": [
        *(sessions.sessions, search_cmd.search, search_cmd.context, show.show, view.view),
        *(sessions.export, extract.extract),
    ],
    "Change": [sessions.rename, sessions.pin, maintenance.erase, sessions.delete],
    "Operate": [
        *(update.work, maintenance.runs, maintenance.metrics, maintenance.check),
        *(maintenance.backup, maintenance.copy, maintenance.scrub, maintenance.migrate),
    ],
}
_OF_BANK: list[Callable[..., None]] = [
    *(bank.note, bank.consolidate, bank.show, bank.history, bank.diff, bank.rollback),
    *(bank.export, bank.load, bank.erase),
]
for _group, _commands in _COMMANDS.items():
    for _command in _commands:
        _as_json = _command is not mcp_cmd.mcp  # whose standard output belongs to the protocol
        app.command(_command.__name__.rstrip("_"), rich_help_panel=_group)(
            declared(_command, as_json=_as_json)
        )
for _command in _OF_BANK:
    of_bank.command(_command.__name__)(declared(_command))
app.add_typer(of_bank, name="bank", rich_help_panel="Change")


def _version(wanted: bool) -> None:  # noqa: FBT001 - the shape of a typer callback
    if wanted:
        out().print(f"hiermem {hiermem.__version__}")
        raise typer.Exit


@app.callback()
def start(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-v", callback=_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Unbounded conversation memory: messages, a tree of summaries, contexts that fit."""
    del version
    replace_unencodable()
