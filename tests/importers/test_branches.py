"""Branches become forks; a newer export adds what is new, wherever in the tree it was added."""

from datetime import UTC, datetime, timedelta
from unicodedata import normalize

import chat_files
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling import drawn

from hiermem import HierarchyConfig, Memory, Message
from hiermem.importers import Conversation, read_chats
from hiermem.importers.chats import paths_of
from hiermem.log.alignment import branch_id, place

NOON = chat_files.NOON
NOON_AT = datetime.fromtimestamp(NOON, UTC)


def keys(session):
    return [m.message.key for m in session.messages()]


def test_a_branch_is_a_fork_that_shares_what_came_before(tmp_path):
    with Memory.open(":memory:") as memory:
        memory.import_chats(read_chats(chat_files.chatgpt(tmp_path)))
        main, fork = memory.session("conv-1"), memory.session("conv-1~a2a")
        assert keys(main) == ["u1", "call", "ran", "a1", "u2", "a2b"]
        assert keys(fork) == ["u1", "call", "ran", "a1", "u2", "a2a"]
        record = next(r for r in memory.sessions() if r.id == fork.id)
        assert (record.forked_from, record.forked_at) == ("conv-1", 5)


@pytest.mark.parametrize("configured", [True, False])
def test_messages_hours_apart_share_a_window(configured, caplog, tmp_path):
    """Broken, a sparse conversation becomes a summary for every message; a re-pack does it, too."""
    said = [
        Message.user(
            f"The pump ran {n} days.", key=f"k{n}", created_at=NOON_AT + n * timedelta(hours=5)
        )
        for n in range(40)
    ]
    config = HierarchyConfig.by_tokens() if configured else None
    with Memory.open(tmp_path / "m.db", config=config) as memory:
        for session_id in ("a", "b"):
            memory.import_chats([Conversation(session_id, None, tuple(said[:30]), format="text")])
            memory.import_chats([Conversation(session_id, None, tuple(said), format="text")])
            session = memory.session(session_id)
            session.update(strategy="full" if session_id == "b" else "incremental")
            assert len(session.summaries(level=1)) == 4
        live = memory.session("live")
        live.append(said)
        assert len(live.summaries(level=1)) >= 30, "the published limit holds for live ones"
    assert not caplog.records


def test_a_changed_current_branch_becomes_a_new_fork(tmp_path):
    """Broken if the session mixed two branches, or lost the one that was current before."""
    before = chat_files.chatgpt_tree(more=False, current="a2b")
    after = chat_files.chatgpt_tree(more=False)
    for each in (
        chat_files.node("u2c", "a1", "user", "Rather: which third?", NOON + 20),
        chat_files.node("a2c", "u2c", "assistant", "None.", NOON + 21),
    ):
        after["mapping"][each["id"]] = each
    after["current_node"] = "a2c"
    with Memory.open(":memory:") as memory:
        memory.import_chats(read_chats(chat_files.dump(tmp_path / "1.json", [before])))
        report = memory.import_chats(read_chats(chat_files.dump(tmp_path / "2.json", [after])))
        assert (report.new, report.forks, report.sessions) == (2, 1, ("conv-1~u2c",))
        assert keys(memory.session("conv-1"))[-2:] == ["u2", "a2b"]
        assert keys(memory.session("conv-1~u2c")) == ["u1", "call", "ran", "a1", "u2c", "a2c"]
        assert memory.check().ok


def test_an_import_that_was_cut_off_is_finished_by_the_next(tmp_path):
    """Broken if a fork that was made and not filled could not be filled."""
    path = chat_files.chatgpt(tmp_path)
    with Memory.open(":memory:") as memory:
        main, *_ = read_chats(path)
        memory.import_chats([main])
        memory.session("conv-1").fork("conv-1~a2a", at=5)
        memory.import_chats(read_chats(path))
        assert keys(memory.session("conv-1~a2a"))[-1] == "a2a"


def test_erased_messages_do_not_come_back(tmp_path):
    """Broken if a repeated import brought back, in a fork or at the end, what was erased."""
    path = chat_files.chatgpt(tmp_path)
    with Memory.open(":memory:") as memory:
        memory.import_chats(read_chats(path))
        memory.session("conv-1").erase([2])
        assert memory.import_chats(read_chats(path)).new == 0
        assert "42" not in [m.content for m in memory.session("conv-1").messages()]


def test_an_erased_message_of_a_file_that_was_cut_off_does_not_come_back(tmp_path):
    """Broken if the whole text, which has another key than the part, were appended again."""
    line = "[1/2/25, 10:0{}:01] {}: "
    text = line.format(0, "Ann") + "hi\n" + line.format(1, "Bo") + "it is blue\n"
    cut = chat_files.write(tmp_path / "cut" / "wa.txt", text[:-5])
    whole = chat_files.write(tmp_path / "wa.txt", text + line.format(2, "Ann") + "ok\n")
    for paths in ([cut], [cut, whole]):
        with Memory.open(":memory:") as memory:
            for path in paths:
                memory.import_chats(read_chats(path))
            session = memory.session(memory.sessions()[0].id)
            session.erase([1])
            memory.import_chats(read_chats(whole))
            assert [m.content for m in session.messages()] == ["hi", "", "ok"]


def test_messages_that_were_added_here_do_not_hinder_a_newer_export(tmp_path):
    with Memory.open(":memory:") as memory:
        memory.import_chats(read_chats(chat_files.chatgpt(tmp_path)))
        memory.session("conv-1").append({"role": "user", "content": "said here"})
        report = memory.import_chats(read_chats(chat_files.chatgpt(tmp_path, more=True)))
        assert (report.new, report.forks) == (1, 0)
        assert [m.content for m in memory.session("conv-1").messages()][-2:] == [
            "said here", "Thanks.",
        ]  # fmt: skip


def test_a_message_that_changed_is_left_and_counted(tmp_path):
    """Broken if one edited message stopped the import of the others."""
    day = [{"type": "message", "user": "U1", "text": f"t{n}", "ts": f"{NOON + n}.0"}
           for n in range(5)]  # fmt: skip
    with Memory.open(":memory:") as memory:
        memory.import_chats(read_chats(chat_files.dump(tmp_path / "d.json", day)))
        day[2]["text"] = "edited"
        day.append({"type": "message", "user": "U1", "text": "new", "ts": f"{NOON + 9}.0"})
        report = memory.import_chats(read_chats(chat_files.dump(tmp_path / "d.json", day)))
        assert (report.new, report.held, report.changed) == (1, 4, 1)
        assert [m.content for m in memory.session(*report.sessions).messages()] == [
            "t0", "t1", "t2", "t3", "t4", "new",
        ]  # fmt: skip


OLD = (
    "2/1/25, 10:00\u202fAM - Ann: Dinner?\n2/1/25, 10:00\u202fAM - Ben: ok\n"
    "2/1/25, 10:00\u202fAM - Ann: ok\n2/1/25, 1:02\u202fPM - Ben: Yes\nat Luigi's\n"
    "2/14/25, 1:03\u202fPM - Ben: bye\n"
)


IOS = (
    "[2/1/25, 10:00:01] Ann: Dinner?\n[2/1/25, 10:00:02] Ben: ok\n[2/1/25, 10:00:03] Ann: ok\n"
    "[2/1/25, 13:02:00] Ben: Yes\nat Luigi's\n[2/14/25, 13:03:59] Ben: bye\n"
)
EDITED = " <This message was edited>"


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        (lambda text: text.replace("Ann:", "Ann Smith:"), 5),  # the contact got a name
        (lambda text: text.replace("\u202fAM", "").replace("1:0", "13:0").replace("\u202fPM", ""),
         5),  # another clock
        (lambda _: IOS, 5),  # another system
        (lambda text: text.replace("Yes", "\u200eYes").replace("bye", f"bye{EDITED}"), 5),
        (lambda text: text.replace("bye", "goodbye"), 4),
    ],
    ids=["renamed", "clock", "system", "marks", "changed"],
)  # fmt: skip
def test_a_chat_that_was_written_anew_adds_no_message_twice(change, kept, tmp_path):
    """Broken if a contact who got a name, or another phone, doubled the whole chat."""
    path = chat_files.write(tmp_path / "wa.txt", OLD)
    new = chat_files.write(tmp_path / "new" / "wa.txt", change(OLD) + "2/15/25, 9:00 - Ann: new\n")
    with Memory.open(":memory:") as memory:
        assert memory.import_chats(read_chats(path)).new == 5
        again = memory.import_chats(read_chats(new, dates="mdy"))
        assert (again.held, again.new, again.changed) == (kept, 6 - kept, 0)
        assert [m.content for m in memory.session(*again.sessions).messages()][4:5] == ["bye"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("<Media omitted>", "<Medien ausgeschlossen>"),
        ("IMG-20250201-WA0001.jpg (file attached)\nSee", "<Multimedia omitido>\nSee"),
        ("\u200eimage omitted", "\u200e<attached: 00000012-PHOTO-2025.jpg>"),
        ("Bild weggelassen", "\u200e画像は含まれていません"),
        ("Caf\u00e9, na\u00efve", "Cafe\u0301, nai\u0308ve"),
    ],
)
@pytest.mark.parametrize("back", [False, True])
def test_a_message_that_is_written_otherwise_is_held(one, other, back, tmp_path):
    """Broken if another language, the files themselves or another normal form doubled a message."""
    text = "[1/2/25, 10:00:01] J\u00fcrgen: hi\n[1/2/25, 10:00:02] Bo: {}\n"
    texts = [text.format(one), normalize("NFD", text.format(other))]
    paths = [chat_files.write(tmp_path / str(n) / "wa.txt", t) for n, t in enumerate(texts)]
    with Memory.open(":memory:") as memory:
        for path in paths[::-1] if back else paths:
            report = memory.import_chats(read_chats(path))
        assert (report.new, report.held, report.changed) == (0, 2, 0)


def test_a_contact_who_sent_files_alone_is_no_group(tmp_path):
    """Broken if the pictures of a contact who never wrote a word were taken for notices."""
    text = (
        "[1/2/25, 10:00:00] Ada: \u200eMessages and calls are end-to-end encrypted.\n"
        "\u200e[1/2/25, 10:00:01] Ada: \u200eBild weggelassen\n"
        "[1/2/25, 10:00:02] Bo: Nice.\n"
        "\u200e[1/2/25, 10:00:03] Ada: \u200eaudio omitted\n"
    )
    (chat,) = read_chats(chat_files.write(tmp_path / "wa.txt", text))
    assert [(message.name, message.content) for message in chat.messages] == [
        ("Ada", "[image]"), ("Bo", "Nice."), ("Ada", "[audio]"),
    ]  # fmt: skip


def test_another_assistant_changes_no_key(tmp_path):
    """Broken if naming the assistant afterwards doubled what he said."""
    path = chat_files.whatsapp_android(tmp_path)
    with Memory.open(":memory:") as memory:
        first = memory.import_chats(read_chats(path))
        again = memory.import_chats(read_chats(path, assistants=["Anna Müller"]))
        assert (again.new, again.held, again.changed) == (0, first.new - 2, 2)


@st.composite
def trees(draw):
    """Draw a tree of messages as it grows: (parents, the node current at each of two exports)."""
    count = draw(st.integers(1, 14))
    parents = {}
    for number in range(count):
        above = draw(st.integers(-1, number - 1))
        parents[f"n{number}"] = None if above < 0 else f"n{above}"
    cut = draw(st.integers(1, count))
    first = draw(st.sampled_from([f"n{n}" for n in range(cut)]))
    second = draw(st.sampled_from(list(parents)))
    return parents, cut, first, second


def imported(parents, current, held, last):
    """Place the paths of a tree as an import does; return the number of new keys."""
    new = 0
    for path in paths_of(parents, current):
        found = place(path, parents[path[0]], base="c", held=held, last=last)
        if found is None:
            continue
        session, start, forked = found
        if forked is not None:
            assert session not in last, "a fork needs a name of its own"
        end = last.get(session)
        at = (forked[1] if forked else 0) if end is None else held[end][1] + 1
        for offset, key in enumerate(path[start:]):
            held[key] = (session, at + offset)
            last[session] = key
            new += 1
    return new


@given(trees())
@drawn(300)
def test_two_exports_place_every_message_once_and_below_its_parent(tree):
    """Broken if a newer export doubled a message, or put it behind another than its parent."""
    parents, cut, first, second = tree
    older = {name: parents[name] for name in list(parents)[:cut]}
    held, last = {}, {}
    assert imported(older, first, held, last) == len(older)
    assert imported(older, first, held, last) == 0
    assert imported(parents, second, held, last) == len(parents) - len(older)
    assert imported(parents, first, held, last) == 0
    assert held.keys() == parents.keys()
    for name, (session, index) in held.items():
        above = parents[name]
        if above is None:
            assert session in ("c", branch_id("c", name))
        elif held[above][0] == session:
            assert held[above][1] == index - 1
        else:
            assert session == branch_id("c", name)
            assert index == held[above][1] + 1
