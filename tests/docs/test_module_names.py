"""The modules, files and folders that documents, docstrings and comments name exist.

A name that outlives its module sends a reader to a place that is not there. Names may be written
from the root of the repository, from ``src`` or from the package, as a path or with dots.
"""

import ast
import functools
import importlib
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from hiermem import ContextSelection
from hiermem.types import bank

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "hiermem"
#: Where a path may begin.
BASES = (ROOT, ROOT / "src", PACKAGE, ROOT / "docs")
SCRIPTS = ("src", "tests", "benchmarks", "examples")
SOURCES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *(path for folder in SCRIPTS for path in sorted((ROOT / folder).rglob("*.py"))),
]
FOLDERS = sorted(path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file())

DOTTED = re.compile(rf"(?<![\w./])(?:hiermem|{'|'.join(FOLDERS)})(?:\.\w+)+")
PYTHON_FILE = re.compile(r"(?<![\w./-])[\w./-]*\w\.py\b")
FOLDER = re.compile(
    rf"(?<![\w./])(?:{'|'.join((*SCRIPTS, 'docs', *FOLDERS))})/(?:[\w-]+/)*(?![\w/])"
)

#: Files of a user's project, in examples of what a conversation may name.
NO_FILES_OF_OURS = {
    "src/store.py", "seats.py", "openai_public.py", "agent.py", "app.py", "chat.py", "fill.py",
}  # fmt: skip
#: A page that is named by its file alone (``models.md``) looks like a member of a folder.
PAGE_SUFFIXES = (".md", ".py", ".svg", ".txt", ".webp")
#: Variables of examples that are called like a folder, and what they hold.
VARIABLES = {"bank": bank, "context": ContextSelection, "text": str}
LOGGER = re.compile(r"getLogger\(\"([\w.]+)\"\)")


def prose_of(text: str, suffix: str) -> Iterator[tuple[int, str]]:
    """Yield (line number, line) of all that is prose: docstrings and comments of Python files."""
    if suffix == ".md":
        yield from enumerate(text.splitlines(), start=1)
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node, clean=False) or ""
            begin = node.body[0].lineno if node.body else 1
            yield from enumerate(docstring.splitlines(), start=begin)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


@functools.cache
def loggers() -> frozenset[str]:
    """Return the names of the package's loggers, which are no modules."""
    texts = [path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")]
    return frozenset(name for text in texts for name in LOGGER.findall(text))


@functools.cache
def exists(name: str) -> bool:
    """Return whether a dotted name leads to a module of the package, or to something in one."""
    if name in loggers():
        return True
    parts = name.removeprefix("hiermem.").split(".")
    if parts[0] in VARIABLES and hasattr(VARIABLES[parts[0]], parts[-1]):
        return True
    place, module = PACKAGE, "hiermem"
    while parts and ((place / parts[0]).is_dir() or (place / f"{parts[0]}.py").is_file()):
        place, module = place / parts[0], f"{module}.{parts[0]}"
        parts = parts[1:]
    if not parts:
        return True
    try:
        return hasattr(importlib.import_module(module), parts[0])
    except ImportError:  # the module needs an extra that is not installed here
        return True


@functools.cache
def is_there(path: str, beside: Path) -> bool:
    """Return whether a path leads somewhere from one of the bases, or from a folder."""
    return any((base / path).exists() for base in (*BASES, beside))


def dead_names(line: str, *, beside: Path) -> list[str]:
    """Return what a line of prose names and does not exist; ``beside`` is the folder it is in."""
    dotted = {each for each in DOTTED.findall(line) if not each.endswith(PAGE_SUFFIXES)}
    paths = {*PYTHON_FILE.findall(line), *FOLDER.findall(line)} - NO_FILES_OF_OURS
    dead = [each for each in dotted if not exists(each)]
    return dead + [each for each in paths if not is_there(each, beside)]


def test_every_module_that_is_named_exists():
    """A reader who follows a name must find something there."""
    found = []
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        if dead_names(text, beside=path.parent):  # in its prose, or in code that only looks so
            found += [
                f"{path.relative_to(ROOT)}:{number}: {name}"
                for number, line in prose_of(text, path.suffix)
                for name in dead_names(line, beside=path.parent)
            ]
    assert not found


@pytest.mark.parametrize(
    "line",
    [
        "decided in ``text.polity``", "see hiermem.core.text for more",
        "``hiermem.summaries.commit.NeverWas`` keeps it", "``changes.nothing`` does it",
        "| question | `text/polity.py` |", "`src/hiermem/text/polity.py`",
        "proven by tests/text/test_polity.py.", "`benchmarks/polity.py` prints it",
        "all of `text/polities/` may use it",
    ],
)  # fmt: skip
def test_a_made_up_name_is_found(line):
    """The check would prove nothing if it overlooked one of the ways to write a name."""
    assert dead_names(line, beside=ROOT)
