"""The command ``view``: writes a memory, or one session of it, as a page for a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

import hiermem
from hiermem.cli import options, output
from hiermem.cli.screen import clean
from hiermem.cli.sessions import new_file

#: How a page of this command begins, which the next one may replace.
_PAGE = b'name="generator" content="hiermem view"'


def view(
    one: options.OneSession,
    *,
    target: Annotated[Path, Option("--output", "-o", help="The page.")] = Path("memory.html"),
    query: Annotated[
        str | None, Option("--query", "-q", help="Show the contexts for this question.")
    ] = None,
    text: Annotated[
        bool, Option("--text/--no-text", help="No text: only structure, times and sizes.")
    ] = True,
) -> None:
    """Write a page for a browser, of all sessions or one. It needs no server and no network."""
    if target.exists() and _PAGE not in _beginning(target):
        raise hiermem.UsageError(
            f"{target} exists and is no page of 'hiermem view'; name a new file"
        )
    name = one.chosen()
    with one.open(read_only=True) as memory:
        shown = memory if name is None else options.session_of(memory, name)
        session = None if isinstance(shown, hiermem.Memory) else shown.id
        page = shown.to_html(text=text, query=query)
    with new_file(target, replace=True) as file:
        file.write(page)
    size = target.stat().st_size
    output.result(
        {"session_id": session, "file": str(target), "bytes": size},
        lambda: output.hint(
            f"wrote {clean(str(target))} ({size / 1e6:.1f} MB): open it in a browser"
        ),
    )


def _beginning(target: Path) -> bytes:
    try:
        with target.open("rb") as file:
            return file.read(2_000)
    except OSError:
        return b""
