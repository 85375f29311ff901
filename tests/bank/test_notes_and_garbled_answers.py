"""No answer, no kill and no fault makes a note live nowhere.

A note that was written is live; or it is consumed, and then a file that names it had its text in
the revision that consumed it, or an answer dropped it with a reason. That is asked of the store
after each step, whatever the model answered and wherever the process died.
"""

import json
from collections import Counter
from contextlib import suppress
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st
from sampling import drawn
from stand_ins import Clock

from hiermem import AsyncMemory, BankPolicy, StoreError, UpdatePolicy
from hiermem.records.run import RecordStore
from hiermem.stores.memory import MemoryStore
from hiermem.testing.faults import DiedError, FaultPlan, FaultyStore
from hiermem.testing.llms import ScriptedLLM

ONCE = UpdatePolicy(retries=0)
NAMES = ("progress.md", "decisions.md", "risks.md")
RULES = "\n".join(f"- {name}: the {name[:-3]} there is" for name in NAMES)
WRITES = frozenset(f"{name}.{when}" for name in ("put_records", "put_run", "write_nodes")
                   for when in ("before", "after"))  # fmt: skip


def careful(request, notes=None) -> dict:
    """Answer as a careful model: each note is a line of one file, which names it."""
    held, begin, files = dict(request.bank.files), dict(request.bank.missing), {}
    numbers = range(1, len(request.bank.notes) + 1) if notes is None else notes
    for number in numbers:
        files.setdefault(NAMES[len(request.bank.notes[number - 1].text) % 3], []).append(number)
    answer = []
    for name, into in files.items():
        lines = [f"- {request.bank.notes[number - 1].text}" for number in into]
        text = (held.get(name) or begin[name]).rstrip("\n")
        content = "\n".join([text, *lines]) + "\n"
        answer.append({"filename": name, "content": content, "notes": into})
    return {"bank_files": answer, "dropped": [], "synthesis": f"{len(request.bank.notes)} more"}


def as_published(request) -> dict:
    """Write each note into one file, in the published format."""
    held = dict(request.bank.files)
    text = held.get(NAMES[0], "# Progress\n")
    lines = "".join(f"- {note.text}\n" for note in request.bank.notes)
    action = "updated" if NAMES[0] in held else "created"
    file = {"filename": NAMES[0], "content": text + lines, "action": action}
    return {"bank_files": [file], "synthesis": "x"}


def one_note(request) -> dict:
    """Take in the first note; another file comes with its heading alone and names no note."""
    answer = careful(request, [1])
    taken = {*dict(request.bank.files), *(file["filename"] for file in answer["bank_files"])}
    bare = [{"filename": name, "content": "# Bare\n", "notes": []}
            for name in NAMES if name not in taken][:1]  # fmt: skip
    return answer | {"bank_files": [*answer["bank_files"], *bare]}


def one_file_less(request) -> dict:
    """Leave a file out. Without any file, a synthesis would take the notes in, by the rule."""
    answer = careful(request)
    files = answer["bank_files"][1:]
    return answer | {"bank_files": files, "synthesis": answer["synthesis"] if files else " "}


def lossy(request) -> dict:
    held = dict(request.bank.files)
    name = next(iter(held), NAMES[0])
    file = {"filename": name, "content": f"# P\n\n- {request.bank.notes[0].text}\n"}
    return {"bank_files": [file | {"notes": [1]}], "synthesis": "y"}


def with_a_wrong_file(request) -> dict:
    """One file is right and one is not; both name all notes of the second half."""
    half = range(1 + len(request.bank.notes) // 2, len(request.bank.notes) + 1)
    bad = {"filename": "mine.md", "content": "# M\n\n- x\n", "notes": [*half]}
    answer = careful(request)
    return answer | {"bank_files": [*answer["bank_files"], bad]}


def dropping(request, reason="a file says it") -> dict:
    """Take in all notes but the last, which is dropped."""
    last = len(request.bank.notes)
    answer = careful(request, range(1, last))
    return answer | {"dropped": [{"note": last, "reason": reason}]}


def cut(request) -> str:
    text = json.dumps(careful(request))
    return text[: 2 * len(text) // 3]


ANSWERS = {
    "no JSON": lambda _: "I cannot do that.",
    "nothing": lambda _: {"bank_files": [], "synthesis": " "},
    "cut": cut,
    "one note": one_note,
    "one file less": one_file_less,
    "lossy": lossy,
    "a wrong file": with_a_wrong_file,
    "dropped without a reason": lambda request: dropping(request, " "),
    "careful": careful,
    "published": as_published,
    "dropping": dropping,
}


def written(answer) -> str:
    return answer if isinstance(answer, str) else json.dumps(answer)


async def accounted(memory, space, said: list[str]) -> Counter[str]:
    """Hold each note to the promise; count how many are live, consumed and dropped."""
    live, consumed = await space.notes(), await space.notes("consumed")
    there = Counter(note.text for note in (*live, *consumed))
    assert there == Counter(said), "a note is nowhere, or there twice"
    for note in consumed:
        texts = [await space.read(name, revision=note.consolidation) for name in note.files]
        if texts:
            assert any(note.text in text for text in texts), "no file says what it took in"
        else:
            assert note.dropped_for.strip(), "it went nowhere, and nothing says why"
    assert (await memory.check()).findings == ()
    meta = await space.meta()
    assert meta.notes_processed == len(consumed)
    return Counter(live=len(live), consumed=len(consumed),
                   dropped=sum(bool(note.dropped_for) for note in consumed))  # fmt: skip


steps = st.tuples(
    st.integers(0, 6),
    st.lists(st.sampled_from(sorted(ANSWERS)), min_size=1, max_size=4),
    st.none() | st.tuples(st.sampled_from(["die", "fail"]), st.integers(0, 14)),
    st.sampled_from(["", "", "", "rollback", "restore"]),
)


@drawn(150, 20)
@given(st.lists(steps, min_size=1, max_size=6))
async def test_no_answer_and_no_kill_makes_a_note_live_nowhere(drawn_steps) -> None:
    """Answers of any kind, faults and deaths at any write, rollbacks with and without the notes."""
    clock, plan, said = Clock(step=timedelta(milliseconds=1)), FaultPlan(only=WRITES), list[str]()
    inner = RecordStore(MemoryStore(clock=clock))
    queue: list[str] = []
    llm = ScriptedLLM(
        remote=True, script=lambda request: written(ANSWERS[queue.pop(0)](request)) if queue
        else written(careful(request)),
    )  # fmt: skip
    policy = BankPolicy(max_notes=8)
    sound = AsyncMemory(store=inner, llm=llm, clock=clock, bank_policy=policy, update_policy=ONCE)
    shaky = AsyncMemory(
        store=FaultyStore(inner, plan), llm=llm, clock=clock, bank_policy=policy, update_policy=ONCE
    )
    space = sound.space("x", rules=RULES)
    assert await space.rules() == RULES
    for count, answers, fault, undo in drawn_steps:
        for _ in range(count):
            said.append(f"fact {len(said):03d}{'x' * (len(said) % 3)}")
            await space.note(said[-1])
        queue[:] = answers
        plan.faults = {}
        if fault is not None:
            how, at = fault
            # A fault is tried again; only three in a row end a run.
            plan.faults = dict.fromkeys(range(plan.arrivals + at, plan.arrivals + at + 3), how)
        with suppress(StoreError, DiedError):
            await shaky.space("x").consolidate()
        plan.revive()
        plan.faults = {}
        clock.at += timedelta(seconds=ONCE.lease + 1)
        await accounted(sound, space, said)
        if undo and (newest := (await space.meta()).revision):
            back = await space.rollback(newest - 1, restore_notes=undo == "restore")
            assert bool(back.restored) <= (undo == "restore")
            await accounted(sound, space, said)
    # And nothing that happened keeps a healthy note out for good.
    queue.clear()
    for _ in range(2 * len(said) + 2):
        if (await space.consolidate()).status == "nothing_to_do":
            break
    assert {note.state for note in await space.notes()} <= {"blocked"}
    await accounted(sound, space, said)
