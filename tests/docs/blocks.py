"""The fenced blocks of a page; as a script, this module runs the Python blocks of one.

It imports nothing that a page does not need: each page runs in a process of its own.
"""

import ast
import asyncio
import re
import sys
import warnings
from pathlib import Path

#: The servers that pages name, none of which is there.
SERVERS = re.compile(r"https?://(?:127\.0\.0\.1:\d+|[\w.-]+\.example)")


def blocks_of(page: Path, language: str) -> list[tuple[int, str]]:
    """Give (line, text) of each fenced block of the language."""
    found, begin, lines = [], None, []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        if begin is None and line.strip().startswith("```"):
            if line.strip().removeprefix("```").split(" ")[0] == language:
                begin, lines = number + 1, []
            else:
                begin = -number
        elif begin is not None and line.strip() == "```":
            if begin > 0:
                found.append((begin, "\n".join(lines)))
            begin = None
        elif begin is not None:
            lines.append(line)
    assert begin is None, f"{page.name}: a block is not closed"
    return found


def run_page(page: Path, server: str = "") -> None:
    """Run the blocks of ``page``, its servers' addresses being ``server``'s.

    Errors point at its lines.
    """
    names: dict[str, object] = {"__name__": "__main__"}
    for line, shown in blocks_of(page, "python"):
        text = SERVERS.sub(server, shown) if server else shown
        code = compile(
            "\n" * (line - 1) + text, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        )
        waits = code.co_flags & 0x80
        made = eval(code, names)
        if waits:
            asyncio.run(made)


if __name__ == "__main__":
    warnings.simplefilter("error")
    run_page(Path(sys.argv[1]), *sys.argv[2:])
