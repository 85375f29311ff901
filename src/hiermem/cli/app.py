"""The command line: every command by its name, in the groups and the order of the help.

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
#: The commands, in the groups of the help.
_COMMANDS: dict[str, dict[str, Callable[..., None]]] = {
    "Start": {
        "demo": demo.demo,
        "import": import_cmd.import_chats,
        "update": update.update,
        "mcp": mcp_cmd.mcp,
    },
    "Read": {
        "sessions": sessions.sessions,
        "search": search_cmd.search,
        "context": search_cmd.context,
        "show": show.show,
        "view": view.view,
        "export": sessions.export,
        "extract": extract.extract,
    },
    "Change": {
        "rename": sessions.rename,
        "pin": sessions.pin,
        "erase": maintenance.erase,
        "delete": sessions.delete,
    },
    "Operate": {
        "work": update.work,
        "runs": maintenance.runs,
        "metrics": maintenance.metrics,
        "check": maintenance.check,
        "backup": maintenance.backup,
        "copy": maintenance.copy,
        "scrub": maintenance.scrub,
        "migrate": maintenance.migrate,
    },
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
for _group, _commands in _COMMANDS.items():
    for _name, _command in _commands.items():
        _as_json = _name != "mcp"  # whose standard output belongs to the protocol
        app.command(_name, rich_help_panel=_group)(declared(_command, as_json=_as_json))
for _name, _command in _OF_BANK.items():
    of_bank.command(_name)(declared(_command))
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
