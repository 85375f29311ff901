"""How much code there is: lines without blanks, comments and docstrings, and classes, by room.

    python benchmarks/code_lines.py [--without importers,mcp,stores/postgres] [--inside core,engine]

``--without`` leaves rooms out, by their paths in the package; ``--inside`` lists the rooms of these
rooms one by one. A line counts if anything of it is code, so a statement over three lines is three.
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "src" / "hiermem"
_NO_CODE = frozenset(
    {
        tokenize.COMMENT,
        tokenize.DEDENT,
        tokenize.ENCODING,
        tokenize.ENDMARKER,
        tokenize.INDENT,
        tokenize.NEWLINE,
        tokenize.NL,
    }
)


def count(source: str) -> tuple[int, int]:
    """Return the code lines and the classes of a module."""
    classes, documented = 0, set()
    for node in ast.walk(ast.parse(source)):
        classes += isinstance(node, ast.ClassDef)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if ast.get_docstring(node, clean=False) is not None and first is not None:
                documented |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            code |= set(range(token.start[0], token.end[0] + 1))
    return len(code - documented), classes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--without", default="", metavar="ROOMS")
    parser.add_argument("--inside", default="", metavar="ROOMS")
    asked = parser.parse_args()
    without = [each for each in asked.without.split(",") if each]
    inside = {each for each in asked.inside.split(",") if each}
    files, lines, classes = Counter[str](), Counter[str](), Counter[str]()
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE)
        room = place.with_suffix("").as_posix()
        if any(room == left or room.startswith(f"{left}/") for left in without):
            continue
        depth = 2 if place.parts[0] in inside else 1
        name = "/".join(place.parts[:depth]) if len(place.parts) > depth else place.as_posix()
        found = count(path.read_text("utf-8"))
        files[name] += 1
        lines[name] += found[0]
        classes[name] += found[1]
    print(f"{'room':<28}{'files':>7}{'lines':>9}{'classes':>9}")
    for name in sorted(files):
        print(f"{name:<28}{files[name]:>7,}{lines[name]:>9,}{classes[name]:>9,}")
    print(f"{'all':<28}{files.total():>7,}{lines.total():>9,}{classes.total():>9,}")


if __name__ == "__main__":
    main()
