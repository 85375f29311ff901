"""The published calls of a space, as written: names, arguments and results."""

from hiermem import Memory

RULES = "# Files\n- progress.md: what works\n- decisions.md: why"


def test_a_space_as_published(tmp_path):
    folder = str(tmp_path / "folder") + "/"
    with Memory.open(tmp_path / "chat.db") as memory:
        space = memory.space("project-x", rules=RULES)
        space.note(
            "Chose SQLite for the embedded default.",
            agent="dev-1",
            category="decision",
            tags=["store"],
        )
        dry = space.consolidate(dry_run=True)
        assert (dry.status, dry.dry_run, space.files()) == ("ok", True, [])
        assert dry.diff
        outcome = space.consolidate(dry_run=False)
        assert outcome.status == "ok"
        assert outcome.message
        assert (outcome.notes_processed, outcome.notes_remaining) == (1, 0)
        assert outcome.files_created == ("decisions.md", "progress.md")
        assert (outcome.files_updated, outcome.files_unchanged) == ((), ())
        assert outcome.diff == dry.diff
        assert outcome.metrics.keys() == {
            "notes_processed", "notes_remaining", "bank_files_updated", "bank_files_created",
            "bank_files_unchanged", "synthesis_size", "llm_tokens_used", "llm_prompt_tokens",
            "llm_completion_tokens", "duration_seconds",
        }  # fmt: skip
        assert space.files() == ["decisions.md", "progress.md"]
        assert "SQLite" in space.read("decisions.md")
        assert "SQLite" in space.synthesis()
        assert space.notes() == []
        space.note("Changed: PostgreSQL for the server.", agent="dev-2")
        assert space.consolidate().notes_processed == 1
        assert [each.number for each in space.history()] == [2, 1]
        assert space.rollback(to=1).number == 3
        assert "PostgreSQL" not in space.read("decisions.md")
        space.export(folder)
        assert space.load(folder).revision is None
        again = space.consolidate()
        assert (again.status, again.message) == ("nothing_to_do", "No new notes to consolidate")
        assert [run.kind for run in memory.runs()] == ["consolidation"] * 3
        assert memory.spaces() == ["project-x"]
