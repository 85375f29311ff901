"""The command line: every command by its name, in the order of the help.

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
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
of_bank = typer.Typer(
    no_args_is_help=True,
    help="Notes, and the bank of files that they are consolidated into.",
    rich_markup_mode=None,
)
_COMMANDS: dict[str, Callable[..., None]] = {
    "demo": demo.demo,
    "update": update.update,
    "extract": extract.extract,
    "show": show.show,
    "view": view.view,
    "import": import_cmd.import_chats,
    "ingest": import_cmd.ingest,
    "sessions": sessions.sessions,
    "pin": sessions.pin,
    "rename": sessions.rename,
    "export": sessions.export,
    "delete": sessions.delete,
    "context": search_cmd.context,
    "search": search_cmd.search,
    "runs": maintenance.runs,
    "metrics": maintenance.metrics,
    "erase": maintenance.erase,
    "scrub": maintenance.scrub,
    "migrate": maintenance.migrate,
    "backup": maintenance.backup,
    "copy": maintenance.copy,
    "check": maintenance.check,
    "work": update.work,
}
_OF_BANK: dict[str, Callable[..., None]] = {
    "note": bank.note,
    "consolidate": bank.consolidate,
    "show": bank.show,
    "history": bank.history,
    "diff": bank.diff,
    "rollback": bank.rollback,
    "export": bank.export,
    "load": bank.load,
    "erase": bank.erase,
}
for _group, _commands in ((app, _COMMANDS), (of_bank, _OF_BANK)):
    for _name, _command in _commands.items():
        _group.command(_name)(declared(_command))
app.command("mcp")(declared(mcp_cmd.mcp, as_json=False))
app.add_typer(of_bank, name="bank")


def _version(wanted: bool) -> None:  # noqa: FBT001 - the shape of a typer callback
    if wanted:
        out().print(f"hiermem {hiermem.__version__}")
        raise typer.Exit


@app.callback()
def start(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Unbounded conversation memory: messages, a tree of summaries, contexts that fit."""
    del version
    replace_unencodable()
