"""Hooks of MkDocs: a page of the reference for each public class, and ``llms.txt``.

The pages are made from the public names, so that a name that is added or goes needs no list. Each
is named in the page of the reference, under the part of the library that defines it.
"""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a test of the names needs no MkDocs
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

#: Where public names are imported from, in this order: a name has one page.
PACKAGES = (
    "hiermem", "hiermem.types", "hiermem.convert", "hiermem.models", "hiermem.embedders",
    "hiermem.importers", "hiermem.mcp", "hiermem.testing",
)  # fmt: skip
#: What is imported from a module of its own, so that no driver is loaded with the package.
SINGLE = (
    "hiermem.models.model_by_name", "hiermem.models.openai.OpenAIChat",
    "hiermem.models.anthropic.AnthropicChat", "hiermem.models.litellm.LiteLLMChat",
    "hiermem.embedders.openai.OpenAIEmbedder",
    "hiermem.embedders.sentence_transformers.SentenceTransformerEmbedder",
    "hiermem.tokens.TiktokenCounter", "hiermem.tokens.ApproximateCounter",
    "hiermem.convert.mermaid.to_mermaid", "hiermem.prompts.PromptTemplate",
    "hiermem.fleet.update_one", "hiermem.search.query.matched",
    "hiermem.models.offline.model.ExtractiveLLM", "hiermem.models.function.FunctionLLM",
    "hiermem.tokens.FunctionCounter", "hiermem.stores.sqlite.SQLiteStore",
    "hiermem.stores.postgres.PostgresStore", "hiermem.stores.memory.MemoryStore",
    "hiermem.integrations.openai_agents.HiermemSession",
    "hiermem.integrations.langchain.HiermemMiddleware",
    "hiermem.integrations.langchain.HiermemRetriever",
    "hiermem.integrations.pydantic_ai.HiermemCapability", "hiermem.integrations.otel.instrument",
    "hiermem.integrations.otel.uninstrument", "hiermem.integrations.procrastinate.add_tasks",
    "hiermem.tracing.set_tracer",
)  # fmt: skip
#: Pages of whole modules.
MODULES = ("hiermem.errors", "hiermem.protocols", "hiermem.published", "hiermem.records.store",
           "hiermem.records.tables", "hiermem.stores.map", "hiermem.testing.llms",
           "hiermem.testing.faults")  # fmt: skip
#: Where a page includes a prompt.
SNIPPET = re.compile(r'^--8<-- "(.*)"$', re.MULTILINE)
#: The parts of the reference, each with the modules that define its names; the first that fits.
PARTS = {
    "Memory, sessions and spaces": ("api", "context.read"),
    "Messages": ("types.message", "convert", "text.fence"),
    "Contexts": ("context",),
    "Search": ("search",),
    "Settings": ("config", "prompts", "published"),
    "Updates and workers": ("summaries", "calls", "work", "fleet", "types.transaction"),
    "The tree": ("types.tree", "tree"),
    "Edits, erasure, copies and checks": ("changes", "upkeep"),
    "Extraction": ("extraction", "types.trivector"),
    "Notes and the bank": ("types.bank",),
    "Importing": ("importers", "log"),
    "Models, embedders, counters and stores": (
        "models", "embedders", "tokens", "stores", "records", "protocols",
    ),
    "Servers, frameworks and tracing": ("mcp", "integrations", "tracing"),
    "Testing": ("testing",),
    "Errors": ("errors",),
}  # fmt: skip


def public_names() -> dict[str, str]:
    """Return the path by which each public name is imported, and the module that defines it."""
    found: dict[str, str] = {}
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name, None)
            home = getattr(value, "__module__", package)
            documented = inspect.isclass(value) or inspect.isfunction(value)
            if name.startswith("_") or inspect.ismodule(value) or is_error(value):
                continue
            if not documented and package != "hiermem":
                continue
            if name not in {path.rpartition(".")[2] for path in found}:
                found[f"{package}.{name}"] = home if home.startswith("hiermem") else package
    listed = {path.rpartition(".")[2] for path in found}
    single = [path for path in SINGLE if path.rpartition(".")[2] not in listed]
    return found | {path: path.rpartition(".")[0] for path in (*single, *MODULES)}


def is_error(value: Any) -> bool:
    """Return whether a name is an error, all of which stand on one page."""
    return inspect.isclass(value) and issubclass(value, Exception)


def part_of(module: str) -> str:
    """Return the part of the reference to which a module's names belong."""
    inside = module.removeprefix("hiermem").removeprefix(".")
    fits = [
        (len(home), part)
        for part, homes in PARTS.items()
        for home in homes
        if inside == home or inside.startswith(home + ".")
    ]
    if not fits:
        raise LookupError(f"docs/site_pages.py names no part of the reference for {module}")
    return max(fits)[1]


def reference_pages() -> dict[str, tuple[str, str]]:
    """Return the address of each page of the reference, its part and its text."""
    pages = {}
    for path, module in public_names().items():
        name = path.removeprefix("hiermem.")
        title = name if path in MODULES else name.rpartition(".")[2]
        part = part_of(name) if path in MODULES else part_of(module)
        options = "    options:\n      heading_level: 1\n"
        if path == "hiermem.testing.StoreConformance":
            options += "      members: [open_store]\n"
        pages[f"reference/{name}.md"] = (part, f"---\ntitle: {title}\n---\n\n::: {path}\n{options}")
    return pages


def rank(address: str) -> tuple[bool, bool, str]:
    """Return what orders the pages of a part: first what an application begins with."""
    name = address.removeprefix("reference/")
    return name.count(".") > 1, name.startswith("Async"), name


def index_of(pages: dict[str, tuple[str, str]]) -> str:
    """Return the first page of the reference: every page, by part."""
    lines = [
        "# Reference", "",
        "Each class and function has a page, whose title says where to import it from,",
        "most from `hiermem`. `Memory`, `Session`, `Space`, `Worker`, `Graph` and `Manager` block;",
        "the classes whose names begin with `Async`, and `ContextWindowManager`, have the same",
        "methods, to be awaited.", "",
    ]  # fmt: skip
    for part in PARTS:
        named = sorted((a for a, (where, _) in pages.items() if where == part), key=rank)
        links = [f"[`{a[10:-3]}`]({a[10:]})" for a in named]
        lines += [f"## {part}", "", ", ".join(links), ""]
    return "\n".join(lines)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages of the reference into the menu, a section a part."""
    pages = reference_pages()
    parts = [
        {part: sorted((a for a, (where, _) in pages.items() if where == part), key=rank)}
        for part in PARTS
    ]
    assert config.nav is not None
    config.nav.append({"Reference": ["reference/index.md", *parts]})
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages of the reference."""
    from mkdocs.structure.files import File

    pages = reference_pages()
    texts = {address: text for address, (_, text) in pages.items()}
    for address, text in ({"reference/index.md": index_of(pages)} | texts).items():
        files.append(File.generated(config, address, content=text))
    return files


def on_post_build(*, config: MkDocsConfig) -> None:
    """Write ``llms.txt``, and beside each page its Markdown, which a model reads with less."""
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", "", "## Pages", ""]
    folder, site = Path(config.docs_dir), Path(config.site_dir)
    for source in sorted(folder.rglob("*.md")):
        inside = source.relative_to(folder)
        text = re.sub(
            r'^--8<-- "(.*)"$', shipped_prompt, source.read_text("utf-8"), flags=re.MULTILINE
        )
        target = site / inside
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")
        if inside.parts[0] != "decisions":
            lines.append(f"- [{text.partition(chr(10))[0][2:]}]({inside}): {first_sentence(text)}")
    (site / "llms.txt").write_text("\n".join(lines) + "\n", "utf-8")


def shipped_prompt(mark: re.Match[str]) -> str:
    """Return the prompt that a page includes."""
    return Path("src/hiermem/prompts", mark[1]).read_text("utf-8").rstrip()


def first_sentence(text: str) -> str:
    """Return the first sentence of a page's prose."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    for paragraph in text.split("\n\n")[1:]:
        if paragraph[:1].isalnum():
            prose = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(paragraph.split()))
            return re.split(r"(?<=[.!?:]) ", prose)[0].rstrip(":")
    return ""
