"""The house rules that a reader relies on: what decides never waits, no circles, and ceilings."""

import ast
import runpy
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import hiermem

SOURCE = Path(hiermem.__file__).parent
ROOT = SOURCE.parents[1]
#: The folders in which a file either decides, or waits or touches the disk. The others may do both:
#: faces (api, cli, mcp, view, integrations), adapters (stores, models, embedders, remote),
#: importers and testing; or they lie below: values and codecs.
FEATURES = (
    "bank", "calls", "changes", "context", "extraction", "log", "prompts", "search", "summaries",
    "text", "tree", "upkeep", "work",
)  # fmt: skip
#: What no file that decides imports: it would wait, or its answer would not follow from its input.
IMPURE = {"logging", "pathlib", "random", "secrets", "socket", "sqlite3", "time"}


def name_of(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


TREES = {name_of(path): ast.parse(path.read_text("utf-8")) for path in SOURCE.rglob("*.py")}
PACKAGES = {name_of(path) for path in SOURCE.rglob("__init__.py")}


def statements(node: ast.AST):
    """Yield all nodes that run, without the blocks for type checkers alone."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for each in child.orelse:
                yield each
                yield from statements(each)
            continue
        yield child
        yield from statements(child)


def imports(tree: ast.Module) -> set[str]:
    """Return the names of the modules that a file imports, in its functions too."""
    found = set()
    for node in statements(tree):
        if isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            for one in node.names:
                inner = f"{node.module}.{one.name}"
                found.add(inner if inner in TREES else node.module)
    return found


IMPORTS = {name: imports(tree) for name, tree in TREES.items()}


def waits(name: str) -> bool:
    """Return whether a file waits for others, or for the disk."""
    return not IMPORTS[name].isdisjoint({"asyncio", "os"}) or any(
        isinstance(node, (ast.AsyncFunctionDef, ast.Await)) for node in statements(TREES[name])
    )


def files_of(folders) -> list[str]:
    return [name for name in TREES if name.split(".")[1:2] and name.split(".")[1] in folders]


def test_a_file_that_decides_imports_none_that_waits():
    """Broken, a decision cannot be read or tested without a store, a model and a clock."""
    wrong = [
        (name, one)
        for name in files_of(FEATURES)
        if not waits(name)
        for one in IMPORTS[name]
        if one.partition(".")[0] in IMPURE
        or (one in TREES and one.split(".")[1:2] and one.split(".")[1] in FEATURES and waits(one))
    ]
    assert wrong == []


def test_a_files_first_words_say_whether_it_decides_or_waits():
    """Broken, a stranger opens the wrong one of two files."""
    wrong = []
    for name in files_of(FEATURES):
        first, _, _ = (ast.get_docstring(TREES[name]) or "").partition(" ")
        if name not in PACKAGES and first not in (
            ("Reads", "Runs", "Writes") if waits(name) else ("Decides",)
        ):
            wrong.append((name, first))
    assert wrong == []


def test_no_files_import_each_other_in_a_circle():
    """Broken, none of them can be understood, tested or moved without the others."""
    files = {name: {one for one in IMPORTS[name] if one in TREES} for name in TREES}
    # The package loads its names when they are asked for; annotations ask for them by it.
    files = {name: used - {"hiermem"} for name, used in files.items()}
    try:
        TopologicalSorter(files).prepare()
    except CycleError as error:
        raise AssertionError(" imports ".join(reversed(error.args[1]))) from None


def ceilings() -> dict[str, int]:
    """Return what ``budgets.txt`` allows: code lines by folder, and the number of files."""
    lines = (ROOT / "budgets.txt").read_text("utf-8").splitlines()
    entries = (line.split() for line in lines if line and not line.startswith("#"))
    return {name: int(ceiling) for name, ceiling in entries}


def test_no_folder_outgrows_its_ceiling():
    """Broken, the library grows by a mechanism at a time until nobody can read it."""
    place = ROOT / "benchmarks" / "code_lines.py"
    count = runpy.run_path(str(place))["count"]
    lines, allowed = Counter(), ceilings()
    for path in SOURCE.rglob("*.py"):
        lines["files"] += 1
        inside = path.relative_to(SOURCE).parts
        folder = inside[0] if len(inside) > 1 else "."
        lines[folder] += count(path.read_text("utf-8"))[0]
    assert lines.keys() == allowed.keys(), "list each folder in budgets.txt, and no other"
    assert {name: n for name, n in lines.items() if n > allowed[name]} == {}
