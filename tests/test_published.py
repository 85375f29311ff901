"""The published plans' own names, units, examples and templates do here what they say there."""

import json
import pickle
import re
from datetime import timedelta
from pathlib import Path

import pytest
from stand_ins import START, talk

import hiermem
from hiermem import CompressionTrigger, ContextBudget, HierarchyConfig, Memory, Message, published
from hiermem.config import BankPolicy, ExtractionOptions, SearchPolicy, UpdatePolicy
from hiermem.errors import ConfigError, UsageError
from hiermem.models import model_by_name

PAGE = Path(__file__).parents[1] / "docs" / "published.md"
#: For each key a value that is not the default, and the setting that it is, in our unit.
CHANGED = {
    "windowChars": (4_000, "config.target", 4_000),
    "minFlushChars": (500, "config.min_flush", 500),
    "overlapChars": (300, "config.overlap", 300),
    "groupChars": (20_000, "config.levels.3.max_size", 20_000),
    "wiggle": (0.1, "config.levels.2.tolerance", 0.1),
    "ratioOnly": (False, "config.ratio_only", False),
    "concurrency": (5, "update_policy.concurrency", 5),
    "batchDelayMs": (250, "update_policy.batch_delay", 0.25),
    "sealPolicy": ("chars", "config.seal_policy", "size"),
    "flushAfterMs": (90_000, "config.flush_after", timedelta(seconds=90)),
    "sessionId": ("s", "arguments.session.session_id", "s"),
    "slug": ("s", "arguments.session.session_id", "s"),
    "strategy": ("full", "arguments.update.strategy", "full"),
    "level": (2, "arguments.update.level", 2),
    "dryRun": (True, "arguments.update.dry_run", True),
    "enabled": (False, "config.enabled", False),
    "l1MessageThreshold": (20, "config.max_messages", 20),
    "l1TokenThreshold": (1_000, "config.target", 1_000),
    "l1TimeThreshold": (600, "config.max_age", timedelta(minutes=10)),
    "l1Strategy": ("concise", "config.levels.1.style", "concise"),
    "l1TargetCompressionRatio": (0.6, "config.levels.1.target_ratio", 0.4),
    "l2SummaryThreshold": (4, "config.levels.2.fan_in", 4),
    "l2TokenThreshold": (3_000, "config.levels.2.max_size", 3_000),
    "l2MessageThreshold": (80, "config.levels.2.max_messages", 80),
    "l2Strategy": ("chronological", "config.levels.2.style", "chronological"),
    "l2TargetCompressionRatio": (0.9, "config.levels.2.target_ratio", 0.1),
    "l3SummaryThreshold": (4, "config.levels.4.fan_in", 4),
    "l3TokenThreshold": (5_000, "config.levels.3.max_size", 5_000),
    "l3MessageThreshold": (400, "config.levels.4.max_messages", 2_000),
    "l3Strategy": ("technical", "config.levels.9.style", "technical"),
    "l3TargetCompressionRatio": (0.75, "config.levels.3.target_ratio", 0.25),
    "defaultContextBudget": (16_000, "budget.max_tokens", 16_000),
    "reserveForRecentMessages": (3_000, "budget.reserve_for_messages", 3_000),
    "maxTokens": (4_000, "budget.max_tokens", 4_000),
    "reserveForMessages": (1_000, "budget.reserve_for_messages", 1_000),
    "availableForSummaries": (5_000, "budget.max_tokens", 7_000),
    "generateEmbeddingsForSummaries": (False, "search_policy.embed_summaries", False),
    "summarizationModel": ("gemini-pro", "model.name", "litellm:gemini-pro"),
    "summarizationTemperature": (0.7, "config.temperature", 0.7),
    "enableSemanticDeduplication": (False, "arguments.search.semantic_dedup", False),
    "regenerateSummariesOnEdit": (True, "update_policy.regenerate_on_edit", True),
    "LLMAAS_API_URL": ("http://127.0.0.1:9/v1", "model.base_url", "http://127.0.0.1:9/v1"),
    "LLMAAS_API_KEY": ("secret", "model.api_key", "secret"),
    "LLMAAS_MODEL": ("qwen3:27b", "model.name", "openai:qwen3:27b"),
    "LLMAAS_CONTEXT_WINDOW": ("131072", "model.context_window", 131_072),
    "LLMAAS_MAX_TOKENS": ("60000", "bank_policy.output_tokens", 60_000),
    "LLMAAS_TEMPERATURE": ("0.5", "bank_policy.temperature", 0.5),
    "CONSOLIDATION_TIMEOUT": ("300", "bank_policy.call_timeout", 300.0),
    "CONSOLIDATION_MAX_NOTES": ("200", "bank_policy.max_notes", 200),
    "contextLimitTokens": (32_768, "extract_options.safe_processing_tokens", 24_576),
    "safeProcessingLimitTokens": (9_000, "extract_options.safe_processing_tokens", 9_000),
}  # fmt: skip


def of(found, place):
    """Return the value at a place of the settings, such as "config.levels.2.style"."""
    name, _, rest = place.partition(".")
    found = found[name] if name in getattr(found, "keys", list)() else getattr(found, name)
    if name == "config" and rest.startswith("levels."):
        _, level, name = rest.split(".")
        return getattr(found.level(int(level)), name)
    return of(found, rest) if rest else found


# -- names, units, defaults


@pytest.mark.parametrize("name", published.keys())
def test_each_key_sets_what_it_names_in_our_unit_and_nothing_else(name):
    """A ratio says what is removed there and what is kept here, and milliseconds become seconds."""
    value, place, wanted = CHANGED[name]
    found, usual = published.settings({name: value}), published.settings({})
    assert of(found, place) == wanted
    for part in ("budget", "update_policy", "bank_policy", "extract_options", "search_policy"):
        if part not in {place.partition(".")[0], "config"}:
            assert getattr(found, part) == getattr(usual, part), f"{name} changes {part}"


def test_the_published_defaults_are_the_presets():
    """Somebody who gives every key its default gets what somebody gets who gives none."""
    chars = published.settings(published.defaults("summaries") | {"slug": "s"})
    assert chars.config == HierarchyConfig.by_chars()
    assert chars.update_policy == UpdatePolicy()
    assert chars.arguments["update"] == {"strategy": "incremental", "dry_run": False}
    tokens = published.settings(published.defaults("compression"))
    assert tokens.config == HierarchyConfig.by_tokens() == HierarchyConfig.from_published({})
    assert tokens.budget == ContextBudget(8_000, 2_000)
    assert tokens.search_policy == SearchPolicy()
    assert tokens.arguments["search"] == {"semantic_dedup": True}
    assert tokens.update_policy == UpdatePolicy()
    bank = published.settings(published.defaults("consolidation")).bank_policy
    assert bank == BankPolicy(output_tokens=100_000, temperature=0.3)
    extract = published.settings(published.defaults("extraction")).extract_options
    assert extract == ExtractionOptions()
    assert hiermem.published is published


def test_a_preset_is_chosen_by_the_units_that_are_given():
    for mapping, unit in (
        ({"windowChars": 9_000, "l1MessageThreshold": 40}, "chars"),
        ({"wiggle": 0.1}, "chars"),
        ({"wiggle": 0.1, "enabled": True}, "tokens"),
        ({"l2TokenThreshold": 3_000, "sealPolicy": "hybrid"}, "tokens"),
        ({}, "tokens"),
    ):
        assert HierarchyConfig.from_published(mapping).unit == unit
    base = HierarchyConfig.by_tokens(target=500, max_messages=7)
    later = HierarchyConfig.from_published({"l2SummaryThreshold": 9, "wiggle": 0.3}, base=base)
    assert (later.target, later.max_messages, later.level(2).fan_in) == (500, 7, 9)
    assert later.level(3).tolerance == later.tolerance == 0.3
    with pytest.raises(ConfigError, match=r"windowChars.*base is in tokens"):
        HierarchyConfig.from_published({"windowChars": 900}, base=base)
    with pytest.raises(ConfigError, match="base is dict"):
        HierarchyConfig.from_published({}, base={})


def test_available_for_summaries_is_what_the_selection_has_for_them():
    """The published budget has three parts; what they leave of the whole is for nothing else."""
    for mapping, budget in (
        ({"maxTokens": 8_000, "reserveForMessages": 2_000, "availableForSummaries": 6_000},
         ContextBudget(8_000, 2_000)),
        ({"maxTokens": 8_000, "reserveForMessages": 2_000, "availableForSummaries": 5_000},
         ContextBudget(8_000, 2_000, reserve_for_output=1_000)),
        ({"reserveForMessages": 500, "availableForSummaries": 1_500}, ContextBudget(2_000, 500)),
    ):  # fmt: skip
        found = published.settings(mapping).budget
        assert found == budget
        assert found.available_for_summaries == mapping["availableForSummaries"]


@pytest.mark.parametrize(
    ("mapping", "wanted"),
    [
        ({"windowChar": 1}, "'windowChar' is no published setting; windowChars is"),
        ({"window_chars": 1}, "windowChars is"),
        ({"l1TokenTreshold": 1}, "l1TokenThreshold"),
        ({"consolidation_max_notes": 5}, "CONSOLIDATION_MAX_NOTES is"),
        ({"xyz": 1}, "there are .*windowChars"),
        ({"x" * 10_000: 1}, "no published setting"),
        ({5: 1}, "a key is int"),
        ([("windowChars", 5)], "they must be a mapping"),
        ({"windowChars": "4000"}, "windowChars is str; it must be a whole number of characters"),
        ({"windowChars": True}, "windowChars is bool"),
        ({"windowChars": None}, "windowChars is NoneType"),
        ({"windowChars": 4000.5}, "windowChars must be a whole number"),
        ({"windowChars": 0}, "target.*windowChars"),
        ({"minFlushChars": 7_000}, "min_flush 7000.*given were minFlushChars"),
        ({"ratioOnly": "yes"}, "ratioOnly is str; it must be true or false"),
        ({"l2TargetCompressionRatio": 70}, "share that is removed"),
        ({"l2TargetCompressionRatio": 1.0}, "share that is removed"),
        ({"l1TimeThreshold": 3_600_000}, "milliseconds meant"),
        ({"flushAfterMs": float("nan")}, "flushAfterMs must be a number of milliseconds"),
        ({"flushAfterMs": 0}, "flush_after must be longer"),
        ({"windowChars": 10**400}, "windowChars must be a whole number"),
        ({"CONSOLIDATION_MAX_NOTES": "[" * 100_000}, "CONSOLIDATION_MAX_NOTES must be"),
        ({"CONSOLIDATION_MAX_NOTES": "inf"}, "CONSOLIDATION_MAX_NOTES must be a whole number"),
        ({"CONSOLIDATION_MAX_NOTES": "many"}, "MAX_NOTES must be a whole number"),
        ({"CONSOLIDATION_MAX_NOTES": 0}, "max_notes.*CONSOLIDATION_MAX_NOTES"),
        ({"LLMAAS_MAX_TOKENS": 10**7}, "output_tokens.*LLMAAS_MAX_TOKENS"),
        ({"safeProcessingLimitTokens": 0}, "safeProcessingLimitTokens"),
        ({"reserveForMessages": 9_000}, "given were reserveForMessages"),
        ({"maxTokens": 8_000, "availableForSummaries": 7_000}, "availableForSummaries"),
        ({"availableForSummaries": -1}, "must be 0 or more; given were available"),
        ({"windowChars": 4_000, "l2TokenThreshold": 2_000}, "windowChars is in characters, l2"),
        ({"windowChars": 4_000, "l1TokenThreshold": 2_000}, "one setting; give one of them"),
        ({"maxTokens": 8_000, "defaultContextBudget": 4_000}, "one setting; give one of them"),
        ({"slug": "a", "sessionId": "b"}, "slug and sessionId are one setting"),
        ({"LLMAAS_MODEL": "a", "summarizationModel": "b"}, "two models"),
    ],
)  # fmt: skip
def test_what_is_not_meant_is_refused_by_its_published_name(mapping, wanted):
    with pytest.raises(ConfigError, match=wanted) as caught:
        published.settings(mapping)
    assert len(str(caught.value)) < 1_500


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("defaultContextBudget", "max_tokens in .budget"),
        ("CONSOLIDATION_MAX_NOTES", "max_notes in .bank_policy"),
        ("batchDelayMs", "batch_delay in .update_policy"),
        ("safeProcessingLimitTokens", "safe_processing_tokens in .extract_options"),
        ("dryRun", "update.dry_run in .arguments"),
    ],
)
def test_a_key_of_another_target_names_it(name, target):
    with pytest.raises(ConfigError, match=f"{name} is no hierarchy setting; see {target}"):
        HierarchyConfig.from_published({name: 5 if name != "dryRun" else True})


def test_a_key_of_a_provider_is_in_no_representation():
    found = published.settings({"LLMAAS_API_KEY": "sk-secret", "LLMAAS_MODEL": "m"})
    assert "sk-secret" not in repr(found)
    assert pickle.loads(pickle.dumps(found)) == found
    model = model_by_name(**found.model | {"base_url": "http://127.0.0.1:9/v1"})
    assert "m" in model.name


def test_the_page_has_every_key_with_unit_default_and_setting():
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line[:3] == "| `"]
    for name, key in published.keys().items():
        (row,) = [line for line in rows if line.startswith(f"| `{name}` |")]
        _, _, default, ours, _, _ = map(str.strip, row.split("|"))
        written = "\N{EN DASH}" if key.default is None else f"`{json.dumps(key.default)}`"
        assert default.startswith(written), name
        for setting in key.settings:
            assert setting.rpartition(".")[2] in ours, name


# -- the published examples, by the published names


def test_thresholds_are_triggers_not_targets():
    """A group is summarised when the children reach the threshold, not before they would pass it.

    At 2,000 tokens a window, an L1 is allotted 1,002 or so: four of them reach 4,000.
    """
    config = HierarchyConfig.from_published(
        {"l1TokenThreshold": 2_000, "l1MessageThreshold": 1_000, "l2TokenThreshold": 4_000}
    )
    trigger = CompressionTrigger(config, level=2)
    with Memory.open(":memory:", config=config) as memory:
        session = memory.session("s")
        session.append(talk(150, said="{n} " + "lorem ipsum dolor sit amet " * 12))
        first, *_ = session.summaries(2)
        assert first.node.input_size >= 4_000
        children = [session.summaries(1)[n] for n in range(len(first.children))]
        assert trigger.check(children[:-1], children[-1]) == ("size",)
        assert len(children) == 4


def test_a_silence_of_so_many_milliseconds_closes_a_window_of_enough_characters():
    mapping = {"windowChars": 6_000, "minFlushChars": 300, "flushAfterMs": 1_200_000}
    with Memory.open(":memory:", config=HierarchyConfig.from_published(mapping)) as memory:
        session = memory.session("s")
        session.append(talk(6, said="{n} " + "said here " * 6))
        late = START + timedelta(seconds=100 + 1_201)
        session.append(Message.user("Are you there?", created_at=late))
        session.append(Message.user("Hm.", created_at=late + timedelta(seconds=1_300)))
        assert [each.span.stop for each in session.summaries(1)] == [6]


def test_more_notes_than_the_most_wait_as_published():
    """Scenario 3 at a hundredth: of six notes with a limit of five, one waits."""
    found = published.settings({"CONSOLIDATION_MAX_NOTES": "5", "CONSOLIDATION_TIMEOUT": "600"})
    with Memory.open(":memory:", bank_policy=found.bank_policy) as memory:
        space = memory.space("p", rules="# Files\n- progress.md: what works")
        for number in range(6):
            space.note(f"Step {number} works.", agent="dev", category="progress")
        outcome = space.consolidate()
        assert (outcome.metrics["notes_processed"], outcome.notes_remaining) == (5, 1)


def test_a_long_session_is_extracted_in_chunks_as_published():
    with Memory.open(":memory:") as memory:
        session = memory.session("session:a")
        session.append(talk(60, said="Ada moved the ferry {n} of Porto to 14:20. " * 6))
        whole = session.extract(published.settings({}).extract_options)
        small = published.settings({"contextLimitTokens": 4_000}).extract_options
        parts = session.extract(small.model_copy(update={"output_tokens": 512}))
        assert len(whole.chunks) == 1
        ids = [chunk.id for chunk in parts.chunks]
        assert len(ids) > 1
        assert ids == [f"session:a:chunk:{n}" for n in range(len(ids))]


@pytest.mark.parametrize(
    "given",
    [
        {"contextLimitTokens": 8_192},
        {"contextLimitTokens": 16_384},
        {"contextLimitTokens": 8_192, "safeProcessingLimitTokens": 6_144},
        {"safeProcessingLimitTokens": 6_000},
    ],
)
def test_a_small_limit_leaves_room_for_a_record(given):
    """Broken if the tokens kept for an answer were those of a model with a large window."""
    with Memory.open(":memory:") as memory:
        session = memory.session("s")
        session.append(talk(60, said="Ada moved the ferry {n} of Porto to 14:20. " * 6))
        report = session.extract(published.settings(given).extract_options)
        assert report.outcome == "ok"
        assert (len(report.chunks) > 1) == (report.estimate > report.threshold)
        assert max(chunk.request_tokens for chunk in report.chunks) < report.threshold


# -- templates


L1 = """Write down what follows.

- Session: {{sessionTitle}}
- Participants: {{participantNames}}
- Time: {{startTime}} to {{endTime}}
- Message count: {{messageCount}}

{{messages}}

## Overview
[one sentence]

## Key Points
- [facts]
"""
L2 = "{{sessionTitle}}: {{totalMessages}} in {{timeSpan}}\n\n{{l1Summaries}}\n\n## Themes\n"
L3 = "{{duration}}, {{totalMessages}}, {{participants}}\n\n{{ l2Summaries }}\n\n## Key Outcomes\n"


def test_a_published_template_is_filled_in_its_places():
    asked = []

    def model(request):
        asked.append(request.messages[-1].content)
        words = sorted(set(re.findall(r"pump \d+", asked[-1])))[:8]
        return "## Overview\n- " + ", ".join(words or ["pumps"]) + " were set."

    templates = [published.prompt(1, L1), published.prompt(2, L2), published.prompt(7, L3)]
    assert [each.name for each in templates] == [
        "summarise.l1.detailed", "summarise.l2.thematic", "summarise.l3.executive",
    ]  # fmt: skip
    with Memory.open(
        ":memory:",
        llm=model,
        config=HierarchyConfig.from_published({"l3SummaryThreshold": 2}),
        prompts={each.name: each for each in templates},
        update_policy=UpdatePolicy(batch_delay=0),
    ) as memory:
        session = memory.session("s", title="Pump house", participants=["Ada", "Ben"])
        session.append(talk(100, said="pump {n} was set to {n}7 rpm by the second crew. " * 9))
        session.update()
    one = next(text for text in asked if text.startswith("Write down"))
    for line in (
        "- Session: Pump house",
        "- Participants: Ada, Ben",
        "- Time: 2024-03-01 09:00 to 2024-03-01 09:03",
        "- Message count: 10",
    ):
        assert line in one.splitlines()
    assert "pump 0 was set to 07 rpm" in one
    two = next(text for text in asked if text.startswith("Pump house: 50 in 2024-03-01"))
    assert "<<record" in two
    assert any(text.startswith("33 minutes, 100, Ada, Ben\n\n<<record") for text in asked)


@pytest.mark.parametrize(
    ("level", "text", "wanted"),
    [
        (1, "{{sessionTitel}} {{messages}}", "sessionTitle is"),
        (1, "{{sessionTitle}}", "level 1 needs {{messages}}"),
        (1, "{{session.title}} {{messages}}", "'session.title' is no place.*sessionTitle is"),
        (1, "{{#each messages}} {{messages}}", "'#each messages' is no place"),
        (2, "{{messages}}", "no place of a prompt of level 2"),
        (3, "{{l1Summaries}}", "l2Summaries"), (0, "{{messages}}", "level"), (1, None, "NoneType"),
    ],
)  # fmt: skip
def test_a_published_template_that_cannot_work_is_refused(level, text, wanted):
    with pytest.raises(ConfigError, match=wanted):
        published.prompt(level, text)


CONSOLIDATION = """=== RULES DE L'ESPACE "{space_id}" ===
{contenu de _rules.md}

=== SYNTHÈSE PRÉCÉDENTE (consolidation #{n-1}) ===
{contenu de _synthesis.md, ou "Aucune"}

=== NOTES LIVE À INTÉGRER ({count} notes) ===
{pour chaque note :}

--- Note {i}/{count} ---
Agent: {agent}

=== FICHIERS BANK ACTUELS ===
{pour chaque fichier :}

=== CONSIGNES ===
Retourne un JSON :
{
  "bank_files": [{"filename": "nom.md", "content": "…", "action": "created" ou "updated"}],
  "synthesis": "…"
}
"""


def test_the_published_prompt_of_a_consolidation_is_filled_below_its_headings():
    asked = []

    def model(request):
        asked.append(request.messages)
        file = {"filename": "progress.md", "content": "# P\n\n- it runs\n", "action": "updated"}
        return json.dumps({"bank_files": [file], "synthesis": "It runs."})

    template = published.prompt("consolidation", CONSOLIDATION, system="Tu es le gardien.")
    with Memory.open(":memory:", llm=model, prompts={template.name: template}) as memory:
        space = memory.space("x", rules="- progress.md: what works")
        for said in ("The pump runs.", "The valve runs."):
            space.note(said, agent="dev", category="progress")
            assert space.consolidate().status == "ok"
    system, user = (message.content for message in asked[-1])
    assert system == "Tu es le gardien."
    headings = [line for line in user.splitlines() if line.startswith("===")]
    assert headings == [
        "=== RULES DE L'ESPACE ===", "=== SYNTHÈSE PRÉCÉDENTE ===",
        "=== NOTES LIVE À INTÉGRER (1 note) ===", "=== FICHIERS BANK ACTUELS ===",
        "=== CONSIGNES ===",
    ]  # fmt: skip
    places = ("what works", "It runs.", "The valve runs.", "- it runs", "Retourne un JSON")
    at = [user.index(each) for each in places]
    assert at == sorted(at)
    assert "{" not in user[: at[-1]]
    assert user.endswith(CONSOLIDATION[CONSOLIDATION.index("Retourne") :].strip())


@pytest.mark.parametrize(
    ("text", "more", "wanted"),
    [
        (CONSOLIDATION, {}, "needs system"),
        (CONSOLIDATION, {"system": "s", "style": "detailed"}, "has no style"),
        ("=== RULES ===\n=== NOTES ===\n", {"system": "s"}, "=== SYNTHÈSE === and === FICHIERS"),
    ],
)
def test_a_published_prompt_of_a_consolidation_that_cannot_work_is_refused(text, more, wanted):
    with pytest.raises(ConfigError, match=wanted):
        published.prompt("consolidation", text, **more)


# -- figures


def test_wrong_types_are_named():
    """Broken if a mistake ended in an error of Python's, which says nothing of what is right."""
    for call, wanted in (
        (lambda: published.defaults(["summaries"]), "plan is list"),
        (lambda: published.metrics(None), "session.metrics"),
        (lambda: published.prompt(1, "{{messages}}", style=5), "style is int"),
        (lambda: published.prompt(1, "{{messages}}", version=None), "version is NoneType"),
    ):
        with pytest.raises((ConfigError, UsageError), match=wanted):
            call()


def test_metrics_have_their_published_names():
    with Memory.open(":memory:") as memory:
        session = memory.session("s")
        session.append(talk(60, said="{n} is told at some length by the two of them today. " * 6))
        session.update()
        before = published.metrics(session.metrics())
        assert before["summaryQualityScore"] is None, "no feedback, no score"
        session.feedback("L1.0", score=1.0)
        session.feedback("L1.1", score=0.5)
        measured = session.metrics()
        found = published.metrics(measured)
    level = measured.levels[0]
    assert found["summaryQualityScore"] == 0.75 != measured.summary_quality_score
    ratio = (level.input_tokens - level.output_tokens) / level.input_tokens
    assert found["l1CompressionRatio"] == pytest.approx(ratio)
    assert (found["sessionId"], found["totalMessages"]) == ("s", 60)
    assert (found["l1Count"], found["l2Count"], found["l3Count"]) == (6, 1, 0)
    assert found["overallCompressionRatio"] == measured.compression
    assert found["tokensSavedByCompression"] == measured.tokens_saved
    assert found["informationLossScore"] == measured.information_loss
    assert found["averageL1GenerationTime"] == level.seconds
    assert found["averageL3GenerationTime"] is found["l3CompressionRatio"] is None
    assert found["estimatedCostSavings"] is None


def test_a_summary_is_superseded_once_its_parent_serves():
    with Memory.open(":memory:") as memory:
        session = memory.session("s")
        session.append(talk(50, said="{n} is told at some length by the two of them today. " * 6))
        session.update(1)
        assert session.summaries(1)[0].parent == "L2.0"
        (found, *_) = session.search("told", levels=[1])
        assert not any(each.superseded for each in (*session.summaries(), found.summary))
        session.update()
        assert [each.superseded for each in session.summaries()] == [True] * 5 + [False]
        assert session.expand("L2.0")[0].superseded
        assert session.search("told", levels=[1])[0].summary.superseded
        assert not session.search("told", levels=[2])[0].summary.superseded
