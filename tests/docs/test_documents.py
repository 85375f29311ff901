"""What the documents print is true: every Python block runs, every published command exists."""

import contextlib
import json
import os
import re
import shlex
import zipfile
from pathlib import Path
from typing import get_args

import blocks
import postgres_server
import pytest
from blocks import blocks_of
from provider import Provider

ROOT = Path(__file__).parents[2]
#: How many numbers the vectors of the models that pages name have.
DIMENSIONS = {"text-embedding-3-small": 1536, "nomic-embed-text": 768}
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "tutorials").glob("*.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_python_block_runs(page, tmp_path, scripts):
    """The blocks of one page run in order, in one namespace, in an empty folder.

    In a process of their own: what an example leaves behind must not meet the other tests.
    """
    if not blocks_of(page, "python"):
        pytest.skip("the page has no Python")
    if page.parent.name == "tutorials":
        pytest.skip("test_tutorials follows it")
    if page.name == "integrations.md":
        pytest.skip("tests/integrations runs it, where the frameworks are")
    with contextlib.ExitStack() as stack:
        words, environment = [str(page)], dict(os.environ)
        if page.name == "models.md":
            # What it says of servers is tried on one that speaks their protocols.
            provider = stack.enter_context(Provider(key="", dimensions=DIMENSIONS))
            words.append(provider.url)
            environment |= {
                "OPENAI_API_KEY": "k", "OPENAI_BASE_URL": provider.openai_url,
                "ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": provider.url, "GATEWAY_KEY": "k",
            }  # fmt: skip
        if page.name == "postgres.md":
            environment["HIERMEM_DB"] = postgres_server.dsn()
            stack.callback(postgres_server.run, "DROP SCHEMA IF EXISTS chat CASCADE")
        ran = scripts.run(blocks.__file__, *words, cwd=tmp_path, env=environment)
        assert ran.returncode == 0, ran.stderr[-3_000:]
        if page.name == "models.md":
            asked = {each.body["model"] for each in provider.served}
            assert asked >= named_models(page), "a recipe asked no server"


def named_models(page: Path) -> set[str]:
    """Give the models that the blocks of a page name first in a call of an adapter."""
    code = "\n".join(text for _, text in blocks_of(page, "python"))
    return set(re.findall(r"(?:Chat|Embedder|Ollama)\(\s*(?:\"http[^\"]*\", )?\"([^\"]+)\"", code))


def commands_of(page: Path) -> list[str]:
    """Give what the page shows of the ``hiermem`` command, in tables and in shell blocks."""
    text = page.read_text(encoding="utf-8")
    found = re.findall(r"`(hiermem [a-z][^`\n]*)`", text)
    for language in ("bash", "sh", "shell", "console"):
        for _, block in blocks_of(page, language):
            for line in block.replace("\\\n", " ").splitlines():
                for part in re.split(r"&&|\|\||[|;]", line.removeprefix("$ ")):
                    if part.strip().startswith("hiermem "):
                        found.append(part.strip())
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_published_command_exists_with_its_options(page):
    typer = pytest.importorskip("typer")
    from hiermem.cli.app import app

    commands = typer.main.get_command(app).commands
    for line in commands_of(page):
        words = shlex.split(line, comments=True)[1:]
        assert words[0] in commands, f"{page.name}: {line!r} names no command"
        command = commands[words[0]]
        if hasattr(command, "commands"):
            assert words[1] in command.commands, f"{page.name}: {line!r} names no command"
            command = command.commands[words[1]]
        known = {
            option
            for parameter in command.params
            for option in (*parameter.opts, *parameter.secondary_opts)
        }
        for word in words[1:]:
            if word.startswith("-") and len(word) > 1:
                option = word.split("=")[0]
                assert option in known, f"{page.name}: {line!r} has an unknown option {option}"


def test_the_page_of_commands_names_every_command():
    typer = pytest.importorskip("typer")
    from hiermem.cli.app import app

    shown = {line.split()[1] for line in commands_of(ROOT / "docs" / "cli.md")}
    assert set(typer.main.get_command(app).commands) <= shown


def test_the_guide_names_every_kind_of_block():
    """Broken, a reader of the guide takes what it does not name for something that is not there."""
    from hiermem.context.render import Kind

    guide = (ROOT / "docs" / "guide.md").read_text("utf-8")
    [kinds] = re.findall(r"`kind` is (.+?) \|", guide)
    assert set(re.findall(r"`(\w+)`", kinds)) == set(get_args(Kind))


def test_the_readmes_commands_do_what_they_say(tmp_path):
    """From import to mcp, one after the other, as a newcomer types them."""
    pytest.importorskip("typer")
    from typer.testing import CliRunner

    from hiermem.cli.app import app

    said = {"author": {"role": "user"}, "content": {"content_type": "text", "parts": ["Hello."]}}
    node = {"id": "m", "parent": None, "children": [], "message": {"id": "m", **said}}
    chats = [{"title": "T", "id": "ID", "mapping": {"m": node}, "current_node": "m"}]
    with zipfile.ZipFile(tmp_path / "export.zip", "w") as archive:
        archive.writestr("conversations.json", json.dumps(chats))
    runner, ran = CliRunner(), []
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        for line in commands_of(ROOT / "README.md"):
            words = shlex.split(line, comments=True)[1:]
            if words[0] == "demo":
                continue
            result = runner.invoke(app, words)
            assert result.exit_code == 0, f"{line}: {result.output}"
            ran.append(words[0])
    assert ran == ["import", "update", "search", "context", "view", "mcp"]
    assert (tmp_path / "hiermem.db").exists()


def test_the_readme_marks_its_two_commands():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for mark in ("run", "test"):
        assert len(re.findall(rf"<!-- start: {mark} -->\n```bash\n[^\n]+\n```", text)) == 1


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_leads_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in target and not target.startswith(("mailto:", "reference/")):  # generated
            assert (page.parent / target).exists(), f"{page.name}: {target} is not there"


#: Pages that name the classes of SDKs and frameworks too.
_OTHERS = ("comparison.md", "integrations.md", "models.md")


def test_every_class_that_a_page_names_exists():
    """Broken if a page goes on naming a class that is gone, as it did with that of a dump."""
    source = " ".join(path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py"))
    known = set(re.findall(r"\w+", source))
    for page in PAGES:
        if page.name not in _OTHERS:
            prose = re.sub(
                r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL
            )
            named = re.findall(r"`(?:\w+\.)*([A-Z][a-z]+(?:[A-Z][a-z]*)+)\b[^`]*`", prose)
            assert set(named) - known == set(), page.name
