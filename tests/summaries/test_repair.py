# ruff: noqa: RUF001  # the marks of other templates are meant
"""What a model puts around its summary never becomes memory, and never costs a good summary."""

import itertools
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_answers import COUNTER, LINES, request, verdict

from hiermem import AsyncMemory, Message, UpdatePolicy
from hiermem.protocols import LLMResponse
from hiermem.stores.memory import MemoryStore
from hiermem.summaries.assess import repair, unwrapped
from hiermem.testing.llms import ScriptedLLM
from hiermem.text.reasoning import holds_reasoning, without_reasoning

#: Thoughts and the answer behind them, as templates that a server did not parse leave them.
BEHIND = {
    "think": "<think>\n{}\n</think>\n\n{}",
    "the template wrote the opening": "{}\n</think>\n\n{}",
    "on one line": "{}</think>{}",
    "thinking": "<thinking>{}</thinking>\n{}",
    "reasoning": "<reasoning>{}</reasoning>{}",
    "capital": "<Think>{}</Think>\n{}",
    "attribute": '<think duration="3">{}</think>\n{}',
    "kimi": "◁think▷{}◁/think▷{}",
    "magistral": "[THINK]{}[/THINK]{}",
    "seed": "<seed:think>{}</seed:think>\n{}",
    "gemma": "<thought>\n{}\n</thought>\n{}",
    "reflection": "<reflection>{}</reflection>\n{}",
    "cohere": "<|START_THINKING|>{}<|END_THINKING|>{}",
    "begin of thought": "<|begin_of_thought|>{}<|end_of_thought|>\n{}",
    "harmony": "<|channel|>analysis<|message|>{}<|end|><|start|>assistant<|channel|>final"
    "<|message|>{}<|return|>",
    "analysis and summary": "<analysis>{}</analysis>\n<summary>{}</summary>",
    "details": '<details type="reasoning">\n<summary>Thought</summary>\n{}\n</details>\n{}',
    "end token": "<think>{}</think>{}<|im_end|>",
    "a turn": "<|im_start|>assistant\n<think>{}</think>{}<|im_end|>\n<|im_start|>user\nMore",
    "announced": "Here is the summary:\n<think>{}</think>\n{}",
    "agreed": "Sure!<think>{}</think>{}",
    "blanks": "< think >{}</ think >\n{}",
    "full width": "＜ｔｈｉｎｋ＞{}＜／think＞{}",
    "zero width": "\ufeff<th\u200bink>{}</\u2060think>{}",
    "escaped": "&lt;think&gt;{}&lt;/think&gt;\n{}",
    "escaped for JSON": "\\u003cthink\\u003e{}\\u003c/think\\u003e{}",
    "escaped for Markdown": "**\\<think\\>**{}**\\</think\\>**\n{}",
    "empty": "<think/>{}{}",
    "small brackets": "[think]{}[/think]\n{}",
    "another language": "<思考>{}</思考>{}",
    "details with a title": "<details><summary>Thought for 3 s</summary>{}</details>\n{}",
    "code block": "````think\n{}\n```\nx\n```\n````\n{}",
    "code block around it": "```markdown\n<think>{}</think>\n{}\n```",
    "bold labels": "**Reasoning:** {}. **Summary:** {}",
    "labels": "Thought: {}.\nAction: none\nFinal answer: {}",
    "headings": "## Thought process\n{}\n\n## Final summary\n\n{}",
    "Chinese labels": "**思考：** {}\n\n**总结：**\n{}",
    "comment": "<!-- thinking: {} -->\n{}",
    "italics": "*Thinking: {}.*\n\n{}",
    "quotation": "> **Thought process**\n> {}\n\n{}",
    "curly": "{{think}}{}{{/think}}{}",
    "element": '<div class="reasoning">{}</div>\n{}',
    "element in a line": '<span class="thinking">{}</span>{}',
    "tokens without a name": "<unused94>thought\n{}<unused95>{}",
    "channel of thoughts": "<|channel>thought\n{}<channel|>{}",
    "boxed": "<think>{}</think>\n\\boxed{{{}}}",
    "plan": "<plan>\n{}\n</plan>\n\n{}",
    "any element": "<self_critique>{}</self_critique>{}",
    "two elements": "<context>x</context>\n<outline>{}</outline>\n<summary>{}</summary>",
    "capitals": "[PLAN]{}[/PLAN]\n{}",
    "fenced plan": "```plan\n{}\n```\n{}",
    "plan label": "**Plan:** {}\n\n**Summary:**\n{}",
    "solution": "<|begin_of_thought|>{}<|end_of_thought|>"
    "<|begin_of_solution|>{}<|end_of_solution|>",
    "German labels": "Überlegung: {}\nZusammenfassung:\n{}",
}
#: It ends in a letter, as thoughts do that break off for the answer.
THOUGHT = "Okay, so they ask for a summary of what Ruth and Nadia said, maybe with the kiln first"
LENGTHS = (1, 3, 30, 120)


@pytest.mark.parametrize("form", BEHIND)
def test_p7_thoughts_are_taken_away_and_the_summary_behind_them_is_kept(form):
    """Broken, a model's thoughts are served as what was said, or a good summary is lost."""
    for times in LENGTHS:
        thoughts = "" if form == "empty" else "; ".join([THOUGHT] * times)
        answer = BEHIND[form].format(thoughts, LINES)
        found = verdict("friends", answer, target=200)
        assert (found.taken, found.calls, found.text) == (True, 1, LINES), times


@pytest.mark.parametrize("name", ["reasoning", "chain_of_thought", "Rationale", "plan", "分析"])
@pytest.mark.parametrize("fence", ["{}", "```json\n{}\n```"])
def test_p7_the_text_beside_reasoning_in_json_is_the_summary(name, fence):
    """Broken, the good answer is refused and paid for twice."""
    for members in ({name: THOUGHT, "summary": LINES}, {"text": LINES, name: [THOUGHT, THOUGHT]}):
        found = verdict("friends", fence.format(json.dumps(members)), target=200)
        assert (found.taken, found.calls, found.text) == (True, 1, LINES)
    other = json.dumps({name: THOUGHT, "summary": LINES, "title": "The kiln"})
    assert not verdict("friends", fence.format(other), target=200).taken, "which text is meant?"


@pytest.mark.parametrize(
    "told",
    [
        "## Plan\n- Ada moves in May\n\n## Decisions\n- She pays 900",
        "Plan: move in May.",
        "Analysis: the pump leaks.\nResult: it was replaced.",
        "<b>Ada</b> rents a flat.",
        "<config>x</config> is what Ada wrote into the file.",
        'She sent {"reasoning": "x", "text": "y"} to the service.',
    ],
)
def test_a_summary_may_tell_of_a_plan_and_begin_with_an_element(told):
    assert unwrapped(told) == told


@pytest.mark.parametrize("mark", ["<think>{}</think>", "◁think▷{}◁/think▷", "[THINK]{}[/THINK]"])
def test_p7_thoughts_in_the_middle_go_too(mark):
    first, last = LINES.rpartition("\n")[::2]
    found = verdict("friends", f"{first}\n{mark.format(THOUGHT)}\n{last}", target=200)
    assert found.taken
    assert "Okay" not in found.text
    assert [line for line in found.text.splitlines() if line] == LINES.splitlines()


@pytest.mark.parametrize("form", [form for form in BEHIND if form not in ("end token", "empty")])
def test_p7_thoughts_without_an_end_are_refused(form):
    """Broken, an answer that was stopped while the model thought becomes memory."""
    opened = BEHIND[form].partition("{}")[0]
    if not holds_reasoning(opened):
        return
    answer = f"{opened}{LINES}"
    found = verdict("friends", answer, target=200)
    assert not found.taken
    assert "reasoning" in found.kinds


@given(
    st.lists(
        st.sampled_from([THOUGHT, "<think>", "</think>", "[THINK]", "[/THINK]", "\n", "<details>",
                         "</details>", "<|channel|>", "<|end|>", "They rent."]),
        max_size=12,
    ).map("".join)
)  # fmt: skip
def test_what_is_left_is_a_part_and_nothing_more_is_found_in_it(text):
    left = without_reasoning(text)
    assert without_reasoning(left) == left or holds_reasoning(left)
    assert set(left.split()) <= set(text.replace(">", "> ").replace("<", " <").split()) | set(
        text.split()
    ) | set(left.split())


@pytest.mark.parametrize(
    "told",
    [
        "The model wrote </think> before its answer, and <think> was missing.",
        "Thoughts stand between <think> and </think>, and the answer follows.",
        "## Key points\n- <think> and </think> are marks. Magistral has [THINK] and [/THINK].",
        "<think> tags hold thoughts that [/THINK] does not close.",
        "Agents write a line Thought: and at the end Final answer: with the result.",
    ],
)
def test_a_summary_may_speak_of_marks_that_its_record_speaks_of(told):
    assert unwrapped(told, spoken=True) == told
    assert not holds_reasoning(told, spoken=True)
    for thoughts in ("<think>They ask of <think> and </think>, I see", "They ask of marks, I see"):
        assert unwrapped(f"{thoughts}</think>\n{told}", spoken=True) == told


@pytest.mark.parametrize(
    "told",
    [
        "Ann asked what `</think>` means.",
        'The marks are "<think>" and "</think>".',
        "Models think between <think> and </think>; servers cut it.",
        "Ruth's reasoning: a table is cheap. Summary: Nadia lends shelves.",
        "Reason for the talk: the bowl cracked.\nOutcome: Nadia lends shelves.",
        "## Thoughts on the market\n- Ruth wants a table.\n## Summary\n- Nadia lends shelves.",
    ],
)
def test_words_and_marks_that_a_text_speaks_of_are_no_reasoning(told):
    assert unwrapped(told) == told
    assert not holds_reasoning(told)


PARTS = {
    "announcement": "Here is the summary:\n{}",
    "fence": "```markdown\n{}\n```",
    "open fence": "````\n{}",
    "tildes": "~~~\n{}\n~~~",
    "tag": "<summary>\n{}\n</summary>",
    "think": f"<think>\n{THOUGHT}\n</think>\n{{}}",
    "offer": "{}\n\nLet me know if you would like more detail!",
}


@pytest.mark.parametrize("count", [1, 2, 3])
def test_what_stands_around_a_summary_goes_in_any_combination(count):
    """Broken, a good summary is refused twice for the wrapping that the guide says is removed."""
    for names in itertools.permutations(PARTS, count):
        if len({"fence", "open fence", "tildes"} & set(names)) > 1:
            continue
        answer = LINES
        for name in names:
            answer = PARTS[name].format(answer)
        assert unwrapped(answer) == LINES, names


def test_what_is_too_long_loses_lines_of_its_longest_section():
    """Broken, a summary that is a little too long loses what is open, its only section after."""
    fact = "- Ruth and Nadia speak of the kiln class and of bowl"
    lines = ["## Key points", "[2024-05-06]", *(f"{fact} {n}." for n in range(9))]
    end = ["## Decisions", "[2024-05-06]", "- Ruth pays.", "", "## Open", "- Not yet known: who."]
    asked = replace(request("friends"), max_tokens=COUNTER.count("\n".join([*lines, *end])) - 20)
    short = repair(LLMResponse("\n".join([*lines, *end])), request=asked).text
    assert COUNTER.count(short) <= asked.max_tokens
    assert short.splitlines() == [*lines[:-2], *end]


@pytest.mark.parametrize("over", [0, 1])
async def test_a_report_counts_the_summaries_that_are_shortened_answers(over):
    """Broken, nobody learns that a model writes too long summaries and loses their lines."""

    def answer(request):
        """Write lines up to the limit, and ``over`` more."""
        lines = ["## Key points"]
        said = [f"- {line}" for source in request.inputs for line in source.text.splitlines()]
        while request.counter.count("\n".join([*lines, said[0]])) <= request.max_tokens:
            lines.append(said.pop(0))
        return "\n".join([*lines, *said[:over]])

    policy = UpdatePolicy(batch_delay=0)
    llm = ScriptedLLM(script=answer, remote=True)
    async with AsyncMemory(store=MemoryStore(), llm=llm, update_policy=policy) as memory:
        facts = "Pump {0} leaks at valve {1}.\nCarla closed hall {2}.\nMeter {3} says {4} bar."
        said = [facts.format(*range(10 * n, 10 * n + 5)) for n in range(20)]
        await memory.session("s").append(*map(Message.user, said))
        report = await memory.update_all()
        assert (report.made, report.shortened) == (2, 2 * over)
        copy = await memory.session("s").fork("t", at=10)
        assert (await copy.update()).shortened == 0, "no answer was shortened by this update"
