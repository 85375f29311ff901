"""The ``hiermem`` command.

It uses only the public API, ``hiermem`` and ``hiermem.importers``, so an application can do
everything that the command does. It needs the extra ``cli`` and says so if that is missing.
"""

from __future__ import annotations

import sys

__all__ = ["main"]

#: The packages of the extra ``cli``; any other missing module is a real fault.
_EXTRA = ("typer", "rich")


def main() -> None:
    """Run the command line and end the process with an exit code; ``cli.app`` lists the codes."""
    try:
        from hiermem.cli.app import app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        sys.stderr.write(
            f"The hiermem command needs {error.name}, which the extra 'cli' brings:\n"
            "  pip install 'hiermem-memory[cli]'    or, from a checkout,    pip install '.[cli]'\n"
        )
        raise SystemExit(2) from None
    app()
