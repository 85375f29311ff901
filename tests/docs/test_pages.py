"""What the pages say of settings, prompts and public names is what the code has."""

import ast
import inspect
import re
import runpy
from dataclasses import fields
from importlib.metadata import metadata
from pathlib import Path

import pytest
from blocks import blocks_of

import hiermem
from hiermem import BankPolicy, ContextPolicy, UpdatePolicy
from hiermem.importers import FORMATS
from hiermem.records.store import Store
from hiermem.records.tables import Commit, Scan
from hiermem.stores.map import ByteMap

DOCS = Path(__file__).parents[2] / "docs"
PROMPTS = Path(hiermem.__file__).parent / "prompts"


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def rows(text: str) -> dict[str, list[str]]:
    """Read the rows of all tables, by the code words of their first cell."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("| `"):
            first, *rest = (cell.strip() for cell in line.strip("|").split(" | "))
            for word in re.findall(r"`(\w+)`", first):
                found[word] = rest
    return found


@pytest.mark.parametrize(
    ("policy", "name"),
    [(UpdatePolicy, "guide.md"), (ContextPolicy, "guide.md"), (BankPolicy, "bank.md")],
)
def test_a_page_gives_every_setting_its_default(policy, name):
    """A default that was changed in the code only would be wrong on the page."""
    told = rows(page(name))
    for name, field in policy.model_fields.items():
        assert name in told, name
        if field.default is None or isinstance(field.default, bool):
            assert told[name][0] == {None: "none", False: "off", True: "on"}[field.default], name
            continue
        number = re.match(r"[\d.]+", told[name][0])
        assert number, told[name]
        assert float(number[0]) == field.default, name


def test_the_guide_gives_both_presets_as_they_are():
    """The table of the presets would mislead where it differs from them."""
    told = rows(page("guide.md").partition("### Settings of windows")[2].partition("\n## ")[0])
    tokens, chars = hiermem.HierarchyConfig.by_tokens(), hiermem.HierarchyConfig.by_chars()
    for name in type(tokens).model_fields:
        assert name in told, name
    for name in ("target", "max_messages", "overlap", "verbatim_tokens", "min_flush"):
        for config, cell in zip((tokens, chars), told[name], strict=False):
            value = getattr(config, name)
            assert cell == ("none" if value is None else str(value)), name


def test_the_page_on_prompts_shows_each_prompt_as_it_ships():
    """A prompt without a place on the page is not known to whoever would replace it."""
    names = re.findall(
        r"^### ([\w.]+)\n\n```text\n--8<-- \"\1\.txt\"$", page("prompts.md"), re.MULTILINE
    )
    assert sorted(names) == sorted(path.stem for path in PROMPTS.glob("*.txt"))


def test_the_reference_has_a_page_for_every_public_name():
    """A public name without a page in the reference cannot be looked up."""
    pages = runpy.run_path(str(DOCS / "site_pages.py"))["reference_pages"]()
    errors = {name for name in hiermem.__all__ if name.endswith("Error")}
    named = {address.removeprefix("reference/").removesuffix(".md") for address in pages}
    assert {name for name in hiermem.__all__ if name[0] != "_"} - errors <= named
    classes = {
        name for name in hiermem.types.__all__ if inspect.isclass(getattr(hiermem.types, name))
    }
    assert {f"types.{name}" for name in classes if not hasattr(hiermem, name)} <= named
    assert "errors" in named


def test_the_page_on_importing_has_every_format():
    """A format that the page does not name is not looked for."""
    table = page("importing.md").partition("## Formats")[2].partition("\n\nThe session")[0]
    named = re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE)
    assert named == [each.name for each in FORMATS]


def test_a_page_names_every_public_error():
    """An error that no page names leaves its reader without advice."""
    text = page("errors.md")
    named = {name for name in hiermem.__all__ if name.endswith("Error")}
    assert not [name for name in named if f"`{name}`" not in text]


@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.md")), ids=lambda path: path.name)
def test_nothing_is_left_to_be_filled_in(path):
    """A figure that was to be put in later would be published as its mark."""
    assert not re.search(r"@@\w+@@|\b(TBD|FIXME)\b", path.read_text(encoding="utf-8"))


def test_a_page_names_every_logger():
    """An application sets levels by these names; one that moves with a module is lost to it."""
    package = Path(hiermem.__file__).parent
    texts = [path.read_text(encoding="utf-8") for path in package.rglob("*.py")]
    used = {name for text in texts for name in re.findall(r'getLogger\("([^"]+)"\)', text)}
    row = re.search(r"^Loggers: (.+?)\n\n", page("errors.md"), re.MULTILINE | re.DOTALL)
    assert row
    assert set(re.findall(r"`([\w.]+)`", row[1])) == used
    assert all(name.count(".") == 1 for name in used)


def parameters(stated: str) -> list[str]:
    """Give the names of parameters as a page states them, with or without a default."""
    return [each.split("=")[0] for each in stated.split(", ") if each]


@pytest.mark.parametrize(
    ("protocol", "section"),
    [(Store, "### On the five operations"), (ByteMap, "### Over an ordered map")],
)
def test_the_page_for_stores_names_every_member(protocol, section):
    """Broken, a store that is written from the page alone lacks what the page leaves out."""
    text = page("adapters.md").split(section, 1)[1].split("\n### ", 1)[0]
    members = {n: m for n, m in vars(protocol).items() if not n.startswith("_")}
    assert members
    assert not members.keys() - set(re.findall(r"^\| `(\w+)", text, re.MULTILINE))
    for name, member in members.items():
        if inspect.isfunction(member):
            stated = re.search(rf"^\| `{name}\(([^`]*)\)` \|", text, re.MULTILINE)
            assert stated, f"the page has no row for {name}(...)"
            assert parameters(stated[1]) == list(inspect.signature(member).parameters)[1:], name


def test_the_page_for_stores_names_every_part_of_a_call():
    """Broken, a store leaves a part of a commit undone, or of a range unread."""
    text = page("adapters.md").split("### On the five operations", 1)[1]
    table, _, rest = text.split("| field of `Commit` |", 1)[1].partition("\n\n")
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == [f.name for f in fields(Commit)]
    assert set(re.findall(r"`(\w+)[`=]", rest.split("```")[0])) >= {*Scan._fields[2:], "prefix"}


class Plain(ast.NodeTransformer):
    """Leaves out docstrings and types, which the page has no room for."""

    def visit_Expr(self, node):
        return None if isinstance(node.value, ast.Constant) else node

    def visit_AnnAssign(self, node):
        return ast.Assign([node.target], node.value, lineno=node.lineno)

    def visit_FunctionDef(self, node):
        node.returns = None
        return self.generic_visit(node)

    def visit_arg(self, node):
        return ast.arg(node.arg)


def test_the_store_on_the_page_is_the_example():
    """Broken, the page shows another store than the one that is run and tested."""
    texts = [text for _, text in blocks_of(DOCS / "adapters.md", "python")]
    [shown] = [text for text in texts if "class JsonLines" in text]
    example = (DOCS.parent / "examples" / "own_store.py").read_text("utf-8")
    begin, whole = shown.index("class JsonLines"), ast.unparse(Plain().visit(ast.parse(example)))
    assert ast.unparse(Plain().visit(ast.parse(shown[begin:]))) in whole


def test_the_suites_on_the_page_pass(tmp_path, scripts):
    """Broken, an author who begins with an adapter of the page begins with a wrong one.

    The store of the example is left out here, because the example runs its suite.
    """
    texts = [text for _, text in blocks_of(DOCS / "adapters.md", "python")]
    (tmp_path / "test_page.py").write_text("\n".join(texts), "utf-8")
    words = ["-q", "-p", "no:cacheprovider", "-k", "not JsonLines", "test_page.py"]
    code = f"import sys, pytest; sys.exit(pytest.main({words}))"
    ran = scripts.run("-c", code, cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout[-3_000:]
    assert " passed" in ran.stdout


def test_the_page_of_a_package_index_has_no_link_into_the_repository():
    """Such a link leads nowhere there, and a picture would be missing."""
    described = metadata("hiermem-memory")
    page = described["Description"] or str(described.get_payload())
    assert page.startswith("# hiermem")
    assert [target for target in re.findall(r"\]\(([^)]*)\)", page) if "://" not in target] == []
    assert "docs/" in page


def test_the_menu_of_the_site_names_the_pages_that_there_are():
    """Broken, the site is not built: a strict build ends at a page that was renamed."""
    menu = (DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    named = re.findall(r"[\w./-]+\.md\b", menu)
    pages = {str(p.relative_to(DOCS)) for p in DOCS.rglob("*.md")}
    assert sorted(named) == sorted(p for p in pages if not p.startswith("decisions/"))


def test_the_pages_are_no_longer_than_can_be_read():
    """Broken, the pages grow by a section at a time until nobody finds anything."""
    lines = [line for p in DOCS.rglob("*.md") for line in p.read_text("utf-8").splitlines()]
    assert len(lines) <= 8_000
