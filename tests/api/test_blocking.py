# pyright: reportUnnecessaryTypeIgnoreComment=true
"""Each blocking call waits: it returns a value of its type, never a coroutine.

mypy --strict and pyright check this file too, and its last part is for them: to a type checker a
derived method takes what its asynchronous one takes, and returns what that one's ``await`` gives.
"""

import asyncio
import inspect
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeAlias, assert_type

import pytest

from hiermem import (
    ALL,
    ClosedError,
    ContextBudget,
    ContextSelection,
    HierarchyConfig,
    Hit,
    Memory,
    Message,
    Session,
    Space,
    UsageError,
)
from hiermem.embedders import HashingEmbedder
from hiermem.importers import Conversation
from hiermem.types import (
    BankRevision,
    BatchReport,
    CheckReport,
    ConsolidationResult,
    CopyReport,
    EditReport,
    EmbeddingReport,
    Evidence,
    ExportReport,
    ExtractionReport,
    Graph,
    GraphEntity,
    ImportReport,
    IndexReport,
    LoadReport,
    Metrics,
    Note,
    Receipt,
    RunReport,
    Scrubbed,
    SessionStatus,
    SpaceMeta,
    StoreCopy,
    StoredMessage,
    SyncReport,
    TriVector,
    UpdatePlan,
    UpdateReport,
    Worker,
    WorkerStatus,
)
from hiermem.types.bank import ForgetReport

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
RULES = "progress.md: what was done"
KEPT = Path(__file__).with_name("surface.txt")
#: A call, and the class of what it returns.
Call: TypeAlias = tuple[Callable[[Any], object], type]


def said(number: int) -> Message:
    text = f"In step {number} Ada moved the store of Kestrel from Redis to SQLite in src/store.py."
    return Message.user(text, created_at=NOON + timedelta(minutes=number))


# The calls run in this order, on one store.
SESSION: dict[str, Call] = {
    "append": (lambda s: s.append([said(number) for number in range(40)]), list),
    "sync": (lambda s: s.sync([said(number) for number in range(40)]), SyncReport),
    "count": (lambda s: s.count(), int),
    "flush": (lambda s: s.flush(), NoneType),
    "tick": (lambda s: s.tick(NOON + timedelta(days=1)), NoneType),
    "update": (lambda s: s.update(), UpdateReport),
    "context": (lambda s: s.context(2_000, query="Kestrel"), ContextSelection),
    "search": (lambda s: s.search("Kestrel", 3, levels=[0]), list),
    "recall": (lambda s: s.recall("Kestrel", 300, neighbours=1), Evidence),
    "embed": (lambda s: s.embed(), EmbeddingReport),
    "expand": (lambda s: s.expand("L1.0", depth=None), tuple),
    "edit": (lambda s: s.edit(39, "Never mind."), EditReport),
    "versions": (lambda s: s.versions(39), tuple),
    "pin": (lambda s: s.pin(0), NoneType),
    "pins": (lambda s: s.pins(), tuple),
    "unpin": (lambda s: s.unpin(0), NoneType),
    "join": (lambda s: s.join("x"), NoneType),
    "leave": (lambda s: s.leave(), NoneType),
    "set_metadata": (lambda s: s.set_metadata({"user": "ada"}), NoneType),
    "set_title": (lambda s: s.set_title("Kestrel"), NoneType),
    "get_metadata": (lambda s: s.get_metadata(), dict),
    "quarantine": (lambda s: s.quarantine([38]), Receipt),
    "erase": (lambda s: s.erase([37]), Receipt),
    "extract": (lambda s: s.extract(), ExtractionReport),
    "tri_vector": (lambda s: s.tri_vector(), TriVector),
    "feedback": (lambda s: s.feedback("L1.0", score=0.5), NoneType),
    "recompress": (lambda s: s.recompress(1, (0, 1)), tuple),
    "reconfigure": (lambda s: s.reconfigure(HierarchyConfig.by_tokens(target=500)), NoneType),
    "fork": (lambda s: s.fork("fork", at=10), Session),
    "delete": (lambda s: s.fork("gone", at=1).delete(), Receipt),
    "messages": (lambda s: s.messages(0, 5), list),
    "summaries": (lambda s: s.summaries(level=1), list),
    "summary": (lambda s: s.summary(), str),
    "forest": (lambda s: s.forest(), tuple),
    "status": (lambda s: s.status(), SessionStatus),
    "runs": (lambda s: s.runs(limit=1), list),
    "metrics": (lambda s: s.metrics(), Metrics),
    "to_html": (lambda s: s.to_html(), str),
    "close": (lambda s: s.close(), NoneType),
    "reopen": (lambda s: s.reopen(), NoneType),
}
SPACE: dict[str, Call] = {
    "note": (lambda s: s.note("Kestrel keeps its data in SQLite.", agent="a"), Note),
    "consolidate": (lambda s: s.consolidate(), ConsolidationResult),
    "rules": (lambda s: s.rules(), str),
    "notes": (lambda s: s.notes("consumed"), list),
    "unblock": (lambda s: s.unblock(), int),
    "files": (lambda s: s.files(), list),
    "read": (lambda s: s.read("progress.md", revision=1), str),
    "synthesis": (lambda s: s.synthesis(), str),
    "meta": (lambda s: s.meta(), SpaceMeta),
    "history": (lambda s: s.history(limit=5), list),
    "diff": (lambda s: s.diff(0, 1), str),
    "rollback": (lambda s: s.rollback(0), BankRevision),
    "export": (lambda s: s.export("bank"), ExportReport),
    "load": (lambda s: s.load("bank"), LoadReport),
    "runs": (lambda s: s.runs(), list),
    "about": (lambda s: s.about(), list),
    "forget": (lambda s: s.forget("Kestrel", dry_run=True), ForgetReport),
    "delete": (lambda s: s.delete(), Receipt),
}
WORKER: dict[str, Call] = {
    "start": (lambda w: w.start(), NoneType),
    "wake": (lambda w: w.wake(), NoneType),
    "drain": (lambda w: w.drain(60), bool),
    "stop": (lambda w: w.stop(), NoneType),
}
GRAPH: dict[str, Call] = {
    "entity": (lambda g: g.entity("SQLite"), GraphEntity),
    "entities": (lambda g: g.entities("SQLite"), tuple),
    "neighbours": (lambda g: g.neighbours("SQLite"), tuple),
    "mentions": (lambda g: g.mentions("SQLite"), tuple),
}
MANAGER: dict[str, Call] = {
    "select_optimal_context": (
        lambda m: m.select_optimal_context("s", ContextBudget(2_000), strategy="layered"),
        ContextSelection,
    ),
    "semantic_search": (lambda m: m.semantic_search("s", "Kestrel", 500), ContextSelection),
    "expand": (lambda m: m.expand("L1.0", session_id="s"), tuple),
}
MEMORY: dict[str, Call] = {
    "session": (lambda m: m.session("s", title="Kestrel"), Session),
    "space": (lambda m: m.space("x"), Space),
    "for_tenant": (lambda m: m.for_tenant("other"), Memory),
    "import_chats": (
        lambda m: m.import_chats([Conversation("c", None, (said(0),), format="text")]),
        ImportReport,
    ),
    "join": (lambda m: m.space("y", rules=RULES) and m.join("y", ["s"]), NoneType),
    "tenants": (lambda m: m.tenants(), list),
    "sessions": (lambda m: m.sessions(), list),
    "find": (lambda m: m.find("Kestrel"), Session),
    "families": (lambda m: m.families(["Kes"]), list),
    "count_sessions": (lambda m: m.count_sessions(), int),
    "search": (lambda m: m.search("Kestrel", space="y"), list),
    "recall": (lambda m: m.recall("Kestrel", space=ALL), Evidence),
    "spaces": (lambda m: m.spaces(), list),
    "runs": (lambda m: m.runs(), list),
    "to_html": (lambda m: m.to_html(), str),
    "run": (lambda m: m.run(m.runs()[0].id), RunReport),
    "update_all": (lambda m: m.update_all(), BatchReport),
    "worker": (lambda m: m.worker(poll=0.1), Worker),
    "list_due": (lambda m: m.list_due(), list),
    "rebuild_index": (lambda m: m.rebuild_index(), IndexReport),
    "reembed": (lambda m: m.reembed(), list),
    "check": (lambda m: m.check(), CheckReport),
    "erase_tenant": (lambda m: m.erase_tenant(), Receipt),
    "scrub": (lambda m: m.scrub(), Scrubbed),
    "backup": (lambda m: m.backup("copy.db"), StoreCopy),
    "copy_to": (lambda m: m.copy_to("target.db"), CopyReport),
    "close": (lambda m: m.close(), NoneType),
}


def assert_brief(value: Any) -> None:
    """Assert that a notebook or a log of a value is one line, whatever the value holds."""
    shown = repr(value)
    assert shown.startswith(f"<{type(value).__name__}"), shown
    assert "\n" not in shown, shown
    assert len(shown) <= 170, shown
    assert value._repr_html_().count(type(value).__name__) >= 1


def call_all(owner: object, calls: dict[str, Call]) -> None:
    """Make each call that was agreed on once."""
    start = f"{type(owner).__name__}."
    agreed = [line.removeprefix(start) for line in KEPT.read_text("utf-8").splitlines()
              if line.startswith(start) and "(" in line]  # fmt: skip
    assert {line.partition("(")[0] for line in agreed} - {"__init__", "open"} == set(calls)
    for name, (call, kind) in calls.items():
        answer = call(owner)
        assert not inspect.isawaitable(answer), name
        assert isinstance(answer, kind), name
        for one in answer if isinstance(answer, (list, tuple)) else [answer]:
            if not isinstance(one, (str, int, dict, NoneType)):
                assert_brief(one)


def test_every_blocking_call_returns_a_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that was derived wrongly, or not at all, would hand out a coroutine, or fail."""
    monkeypatch.chdir(tmp_path)
    embedder: Any = HashingEmbedder()  # an array is no Sequence to a type checker
    with Memory.open(tmp_path / "chat.db", embedder=embedder) as memory:
        memory.space("x", rules=RULES).files()
        call_all(memory.session("s"), SESSION)
        call_all(memory.space("x", rules=RULES), SPACE)
        call_all(memory.worker(), WORKER)
        call_all(memory.graph, GRAPH)
        assert isinstance(memory.session("s").update(dry_run=True), UpdatePlan)
        assert isinstance(memory.update_all(dry_run=True), UpdatePlan)
        assert isinstance(memory.worker().status, WorkerStatus)
        call_all(memory.manager, MANAGER)
        names = (memory.tenant, memory.session("s").id, memory.space("x").name)
        assert names == ("default", "s", "x")
        call_all(memory, MEMORY)
        with pytest.raises(ClosedError):
            memory.sessions()


def test_a_call_passes_on_what_the_model_raises(tmp_path: Path) -> None:
    with Memory.open(tmp_path / "chat.db") as memory, pytest.raises(UsageError, match="level"):
        memory.session("s").update(0)


if TYPE_CHECKING:

    def right(memory: Memory, session: Session, space: Space, worker: Worker, graph: Graph) -> None:
        assert_type(session.append(said(0), [said(1)]), list[int])
        assert_type(session.search("x", 3, levels=[1], since=NOON), list[Hit])
        assert_type(session.recall("x", beside=session.context()), Evidence)
        assert_type(session.sync([], on_rewrite="fork"), SyncReport)
        assert_type(session.update(), UpdateReport)
        assert_type(session.update(2, wait=False, dry_run=False), UpdateReport)
        assert_type(session.update(dry_run=True), UpdatePlan)
        assert_type(session.tri_vector(), TriVector | None)
        assert_type(session.versions(0), tuple[StoredMessage, ...])
        assert_type(session.fork("f"), Session)
        assert_type(session.context(), ContextSelection)
        assert_type(memory.update_all(strategy="full"), BatchReport)
        assert_type(memory.update_all(dry_run=True), UpdatePlan)
        assert_type(memory.count_sessions(metadata={"user": "ada"}), int)
        assert_type(memory.spaces(), list[str])
        assert_type(memory.reembed(), list[EmbeddingReport])
        assert_type(space.note("x", tags=["t"]), Note)
        assert_type(space.notes("blocked"), list[Note])
        assert_type(worker.drain(timeout=5.0), bool)
        assert_type(graph.entity("x", type="file"), GraphEntity | None)

    def wrong(memory: Memory, session: Session, space: Space, worker: Worker, graph: Graph) -> None:
        session.search()  # type: ignore[call-arg]
        session.search("x", limt=3)  # type: ignore[call-arg]
        session.search("x", limit="3")  # type: ignore[arg-type]
        session.search("x", levels="all")  # type: ignore[arg-type]
        session.update(dry_run="yes")  # type: ignore[call-overload]
        session.update(max_call=3)  # type: ignore[call-overload]
        session.edit(0, "x", on_edit="keep")  # type: ignore[call-arg]
        session.feedback("L1.0")  # type: ignore[call-arg]
        session.anything()  # type: ignore[attr-defined]
        memory.runs(10)  # type: ignore[call-arg]
        memory.session("s").delete(forks=True)  # type: ignore[arg-type]
        space.notes("gone")  # type: ignore[arg-type]
        worker.drain("5")  # type: ignore[arg-type]
        graph.entity("x", "file")  # type: ignore[call-arg]


def test_a_memory_serves_and_closes_where_a_loop_runs_already(tmp_path: Path) -> None:
    """The cells of a notebook run inside its loop; closing there raised RuntimeError."""

    async def cell() -> None:
        with Memory.open(tmp_path / "memory.db") as memory:
            memory.session("s").append(Message.user("Hello"))

    asyncio.run(cell())
    with Memory.open(tmp_path / "memory.db") as memory:
        assert memory.session("s").count() == 1
