"""The space of a command line: what imports join, what is known, and what is forgotten."""

import json
import re

from commands import run

from hiermem import Memory, Message

TALK = [
    ("user", "I live in Leeds. Always answer in metric units."),
    ("assistant", "Noted: you live in Leeds."),
    ("user", "My ex phoned about the flat."),
]
LATER = [("user", "I moved, and now I live in Bristol."), ("assistant", "Good to know.")]


def chat(folder, name, lines, month):
    """Write a conversation to a file; who is neither user nor assistant is a person with a name."""
    path = folder / f"{name}.jsonl"
    rows = [
        {"role": who, "content": text, "created_at": f"2026-{month:02}-0{n + 1}T10:00:00Z"}
        | ({} if who in ("user", "assistant") else {"role": "user", "name": who})
        for n, (who, text) in enumerate(lines)
    ]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


def test_what_is_known_after_two_imports(tmp_path):
    """Broken, a person who imports chats still has as many memories as chats."""
    db = tmp_path / "m.db"
    for name, lines, month in (("march", TALK, 3), ("july", LATER, 7)):
        run("import", chat(tmp_path, name, lines, month), "--db", db)
    _, *every = run("about", "--db", db).stdout.splitlines()
    assert [(line[:10], line[18:].split(maxsplit=1)) for line in every] == [
        ("2026-03-01", ["wish", "Always answer in metric units."]),
        ("2026-07-02", ["conversation", "july"]),
        ("2026-03-03", ["conversation", "march"]),
    ]
    of = run("about", "Where do I live?", "--db", db).stdout
    assert "Bristol" in of
    assert "Leeds" in of
    hits = run("search", "Where do I live?", "--db", db).stdout
    assert hits.index("Bristol") < hits.index("Leeds")
    context = run("context", "july", "--db", db).stdout
    assert "the user asked on 2026-03-01: Always answer in metric units." in context


def test_what_is_forgotten_is_shown_and_asked_for_first(tmp_path):
    """Broken, a word too few erases what nobody wanted to lose."""
    db = tmp_path / "m.db"
    run("import", chat(tmp_path, "march", TALK, 3), "--db", db)
    would = run("forget", "leeds", "--db", db, "--dry-run").stdout
    assert "Always answer in metric units." in would
    assert "to be erased  1 line" in would
    report = json.loads(run("forget", "leeds", "--db", db, "--dry-run", "--json").stdout)
    assert (report["dry_run"], len(report["gone"])) == (True, 1)
    asked = run("forget", "leeds", "--db", db, code=2)
    assert "Always answer in metric units." in asked.stdout
    assert "Erase 1 line with everything derived?" in asked.stderr
    assert "--yes" in asked.stderr
    assert "Leeds" in run("search", "Leeds", "--db", db).stdout
    told = run("forget", "leeds", "--db", db, "--yes")
    done = told.stdout
    assert "erased  1 line" in done
    assert "--everyone erases what others said" in told.stderr
    assert "--person NAME" in told.stderr
    assert "Noted: you live in Leeds." in done.partition("left, may say the same")[2]
    assert "wish" not in run("about", "--db", db).stdout
    run("forget", "leeds", "--db", db, "--yes", "--everyone")
    assert "Leeds" not in run("search", "Leeds", "--db", db).output
    assert "flat" in run("search", "flat", "--db", db).stdout
    assert "no word to search by" in run("forget", "the", "--db", db, "--yes", code=2).stderr


def test_nobody_reads_across_by_leaving_something_out(tmp_path):
    """Broken, one person's question is answered from another one's conversations."""
    db = tmp_path / "m.db"
    with Memory.open(db) as memory:
        for name in ("ada", "ben"):
            memory.space(name, person=name).files()
            memory.session(f"of {name}", space=name).append(
                Message.user(f"The PIN of {name} is 47{len(name)}1{name}.")
            )
        memory.session("old").append(Message.user("No PIN here."))
    for words in (["search", "PIN"], ["about"], ["forget", "PIN", "--yes"]):
        said = run(*words, "--db", db, code=2).output
        assert "pass --space or --no-space; there is ada, ben" in said
    assert "471ben" not in run("search", "PIN", "--db", db, "--space", "ada").stdout
    assert run("search", "PIN", "--db", db, "--no-space").stdout.count("PIN") == 1
    listed = run("sessions", "--db", db, "--space", "ada", "--json").stdout
    assert [each["id"] for each in json.loads(listed)["sessions"]] == ["of ada"]
    assert len(json.loads(run("sessions", "--db", db, "--json").stdout)["sessions"]) == 3
    assert (
        "exclude" in run("search", "x", "--db", db, "--space", "ada", "--no-space", code=2).output
    )
    assert "space 'eve' does not exist" in run("about", "--db", db, "--space", "eve", code=1).output
    run("join", "--all", "--db", db, "--space", "ada")
    assert "No *PIN* here." in run("search", "PIN", "--db", db, "--space", "ada").stdout
    assert "in space 'ben'" in run("join", "of ben", "--db", db, "--space", "ada", code=2).output
    run("join", "--db", db, code=2)


def test_a_space_that_is_named_is_meant(tmp_path):
    """Broken, the only conversation answers for a space that it is not in, or a note is lost."""
    db = tmp_path / "m.db"
    run("import", chat(tmp_path, "march", TALK, 3), "--db", db)
    with Memory.open(db) as memory:
        memory.space("ada", person="Ada").files()
    assert "Leeds" not in run("search", "Leeds", "--db", db, "--space", "ada").output
    assert "Leeds" in run("search", "Leeds", "--db", db).output
    run("bank", "note", "I like green tea.", "--db", db)
    assert re.search(r" note +I like green tea", run("about", "--db", db).stdout)
    assert "tea" not in run("about", "--db", db, "--space", "ada").stdout


def test_an_import_names_its_space_or_none(tmp_path):
    """Broken, everybody's chats join one person, or a second import leaves the space."""
    db = tmp_path / "m.db"
    run("import", chat(tmp_path, "a", TALK, 3), "--db", db, "--no-space")
    run("import", chat(tmp_path, "b", LATER, 7), "--db", db, "--space", "ada")
    with Memory.open(db) as memory:
        assert [record.space for record in memory.sessions()] == [None, "ada"]
    run("import", chat(tmp_path, "a", TALK, 3), "--db", db)
    with Memory.open(db) as memory:
        assert [record.space for record in memory.sessions()] == ["me", "ada"]
        assert memory.check().ok


def test_the_person_of_a_new_space_speaks_under_a_name(tmp_path):
    """Broken, an import in which people have names has no wish of anybody's."""
    lines = [("Ada", "Always answer in metric."), ("Bob", "Never answer in metric.")]
    db, path = tmp_path / "m.db", chat(tmp_path, "group", lines, 3)
    run("import", path, "--db", db, "--person", "Ada")
    told = run("about", "--db", db).stdout
    assert "Always answer in metric." in told
    assert "Never" not in told
    other = run("import", path, "--db", db, "--person", "Bob", code=1)
    why = "the person of space 'me' cannot change; give none, or use another space (--space NAME)"
    assert why in other.stderr
    assert other.stdout == "", "it is said before the file is read"
    run("join", "--all", "--db", db, "--space", "bob", "--person", "Bob")
    with Memory.open(db) as memory:
        assert sorted(memory.spaces()) == ["bob", "me"]


def test_an_export_names_its_space_and_one_of_a_space_has_its_members(tmp_path):
    """Broken, one person's memory cannot be taken elsewhere, or another's comes along."""
    db, folder = tmp_path / "m.db", tmp_path / "out"
    for name, lines, month in (("march", TALK, 3), ("july", LATER, 7)):
        run("import", chat(tmp_path, name, lines, month), "--db", db)
    other = chat(tmp_path, "other", [("user", "My PIN is 4711.")], 5)
    run("import", other, "--db", db, "--no-space")
    run("bank", "note", "I like green tea.", "--db", db)
    run("export", "--space", "me", folder, "--db", db)
    assert sorted(path.name for path in folder.iterdir()) == [
        "001 march.jsonl", "002 july.jsonl", "_meta.json", "_rules.md", "notes.jsonl",
    ]  # fmt: skip
    written = [json.loads(line) for line in (folder / "001 march.jsonl").read_text().splitlines()]
    assert [(line["content"], line["space"]) for line in written] == [
        (text, "me") for _, text in TALK
    ]
    assert "green tea" in (folder / "notes.jsonl").read_text()
    assert "person.md" in (folder / "_rules.md").read_text()
    assert "4711" not in "".join(path.read_text() for path in folder.iterdir() if path.is_file())
    told = run("export", "march", "--db", db, "--format", "markdown").stdout
    assert told.startswith("# march (space: me)\n")
    (tmp_path / "again.md").write_text(told)
    run("import", tmp_path / "again.md", "--db", tmp_path / "n.db")
    with Memory.open(tmp_path / "n.db") as memory:
        assert [record.title for record in memory.sessions()] == ["march"]
    assert "space" not in run("export", "other", "--db", db).stdout
    assert "cannot be made" in run("export", "--space", "me", folder, "--db", db, code=2).output
    assert "one word" in run("export", "--space", "me", "--db", db, code=2).output
    assert "does not exist" in run("export", "--space", "eve", "x", "--db", db, code=1).output


GROUP = [
    ("Anna", "Hi Tom! Are we still on for the boat on Saturday?"),
    ("Tom", "The boat cost 340 CHF for the weekend."),
    ("Anna", "My new number is +41 79 555 01 02."),
]


def test_every_erasure_names_the_folder_a_space_was_exported_to(tmp_path):
    """Broken, somebody believes a matter erased whose words stand in a folder of his own."""
    db, folder = tmp_path / "m.db", tmp_path / "out"
    run("import", chat(tmp_path, "march", TALK, 3), "--db", db)
    run("import", chat(tmp_path, "july", LATER, 7), "--db", db)
    run("export", "--space", "me", folder, "--db", db)
    assert any("Leeds" in path.read_text() for path in folder.iterdir())
    named = re.compile(re.escape(str(folder)) + r"(?!/)")
    for words in (["forget", "leeds"], ["erase", "march", "2"], ["delete", "july"]):
        assert named.search("".join(run(*words, "--db", db, "--yes").stdout.split()))
    told = json.loads(run("forget", "x", "--db", db, "--json").stdout)
    assert told["exports"] == [str(folder)]


def test_a_backup_is_named_by_what_a_space_forgets(tmp_path):
    """Broken, a copy that an erasure of the message names goes unsaid when it is forgotten."""
    with Memory.open(tmp_path / "m.db") as memory:
        ada = memory.space("ada", person="Ada")
        memory.session("june", space="ada").append(Message.user("My bike is red."))
        memory.backup(tmp_path / "copy.db")
        assert str(tmp_path / "copy.db") in ada.forget("bike").exports


def test_a_line_is_as_old_as_the_message_it_comes_from(tmp_path):
    """Broken, one note about somebody makes all that he ever said look like today's news."""
    db = tmp_path / "m.db"
    run("import", chat(tmp_path, "group", GROUP, 3), "--db", db, "--person", "Anna")
    run("bank", "note", "Tom's boat is moored at pier 7", "--db", db)
    run("bank", "consolidate", "--db", db)
    lines = json.loads(run("about", "--db", db, "--json").stdout)["known"]
    since = {line["text"]: line["since"][:10] for line in lines if line["place"] == "file"}
    assert {"2026-03-02", "2026-03-03"} < set(since.values())
    assert all(day == text[:10] for text, day in since.items())


def test_what_others_said_is_forgotten_only_with_their_messages(tmp_path):
    """Broken, the bank loses what the message still says, and the same is erased and left."""
    db = tmp_path / "m.db"
    run("import", chat(tmp_path, "group", GROUP, 3), "--db", db, "--person", "Anna")
    run("bank", "consolidate", "--db", db)
    run("bank", "note", "The boat is at pier 7.", "--db", db)
    run("bank", "consolidate", "--db", db)
    told = json.loads(run("forget", "boat", "--db", db, "--yes", "--json").stdout)
    gone, left = (
        {re.sub(r"^\S+: | \(\w+\)$", "", line["text"]) for line in told[name]}
        for name in ("gone", "unproven")
    )
    assert "The boat cost 340 CHF for the weekend." in left
    assert gone == {GROUP[0][1], "The boat is at pier 7."}
    known = run("about", "--db", db).stdout
    assert "340 CHF" in known
    assert "pier" not in known
    run("forget", "boat", "--db", db, "--yes", "--everyone")
    assert "340 CHF" not in run("about", "--db", db).stdout
