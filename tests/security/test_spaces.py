"""A space's conversations see one another; nothing else sees them, and they see nothing else."""

import random
import tempfile
from pathlib import Path

import postgres_server
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling import drawn

from hiermem import ALL, Memory, Message, NotFoundError, UsageError
from hiermem.stores.memory import MemoryStore

RULES = "# Files\n- person.md: who\n"
SPACES = (None, "ada", "a.", "a%")
TENANTS = ("default", "other")
ACTIONS = ("append", "append", "append", "fork", "join", "leave", "delete", "erase")
_STEPS = st.lists(
    st.tuples(*map(st.sampled_from, (ACTIONS, TENANTS, "stuv", SPACES))), min_size=8, max_size=30
)


class Histories:
    """What each session holds, in plain dicts: the words of its live messages, and its space."""

    def __init__(self) -> None:
        self.words: dict[tuple[str, str], list[str | None]] = {}
        self.spaces: dict[tuple[str, str], str | None] = {}
        self.number = 0

    def members(self, tenant: str, space: object) -> set[str]:
        """Return the words that a scope of a tenant may show."""
        return {
            word
            for (of, name), words in self.words.items()
            if of == tenant and (space is ALL or self.spaces[of, name] == space)
            for word in words
            if word
        }

    def step(self, memory: Memory, what: str, tenant: str, name: str, space: str | None) -> None:
        """Do one step on both sides."""
        session, key = memory.session(name), (tenant, name)
        exists = key in self.words
        if what == "append":
            self.number += 1
            word = f"zebra{self.number}"
            member = memory.session(name, space=space)
            if exists and space not in (None, self.spaces[key]):
                with pytest.raises(UsageError):
                    member.append(Message.user("never"))
                return
            member.append(Message.user(f"My animal is {word}."))
            self.words.setdefault(key, []).append(word)
            self.spaces.setdefault(key, space)
        elif not exists:
            with pytest.raises((NotFoundError, UsageError)):
                session.join(space or "none such")
        elif what == "fork" and (tenant, f"{name}{name}") not in self.words:
            session.fork(f"{name}{name}")
            self.words[tenant, f"{name}{name}"] = list(self.words[key])
            self.spaces[tenant, f"{name}{name}"] = self.spaces[key]
        elif what == "join" and space is not None:
            if self.spaces[key] not in (None, space):
                with pytest.raises(UsageError):
                    session.join(space)
                return
            session.join(space)
            self.spaces[key] = space
        elif what == "leave":
            session.leave()
            self.spaces[key] = None
        elif what == "delete" and space is not None:
            memory.space(space).delete()
            memory.space(space, rules=RULES).files()
            self.spaces |= {
                place: None if place[0] == tenant and held == space else held
                for place, held in self.spaces.items()
            }
        elif what == "erase" and self.words[key][-1]:
            session.erase([len(self.words[key]) - 1], forks="keep")
            self.words[key][-1] = None


def words_of(text: str) -> set[str]:
    return {word.strip(".") for word in text.split() if word.startswith("zebra")}


@drawn(200, plain=15)
@given(_STEPS)
def test_no_scope_shows_a_word_of_another(steps):
    """Random histories of tenants, spaces, forks, joins: each search shows its members' words."""
    with tempfile.TemporaryDirectory() as folder, Memory.open(Path(folder, "a.db")) as own:
        live_through(steps, own, "other")


def live_through(steps, own, other):
    """Take the steps in two tenants, whose spaces exist, and check each scope."""
    tenants, histories = {"default": own, "other": own.for_tenant(other)}, Histories()
    for memory in tenants.values():
        for space in filter(None, SPACES):
            memory.space(space, rules=RULES).files()
    for what, tenant, name, space in steps:
        histories.step(tenants[tenant], what, tenant, name, space)
    check_scopes(tenants, histories)


def check_scopes(tenants, histories):
    """Each search, recall and context of each tenant shows the words of its members alone."""
    for tenant, memory in tenants.items():
        for space in (*SPACES, ALL):
            allowed = histories.members(tenant, space)
            hits = memory.search("animal", limit=100, space=space, semantic_dedup=False)
            assert {word for hit in hits for word in words_of(hit.text)} == allowed
            assert all(space in (ALL, hit.space) for hit in hits)
            assert words_of(memory.recall("animal", 4_000, space=space).text) == allowed
            listed = [record.id for record in memory.sessions(space=space)]
            assert len(listed) == memory.count_sessions(space=space)
        for (of, name), space in histories.spaces.items():
            if of == tenant:
                session = memory.session(name)
                spoken = {word for word in histories.words[of, name] if word}
                allowed = spoken if space is None else histories.members(tenant, space)
                context = session.context(4_000, query="Which animal?")
                assert words_of(context.to_text()) <= allowed
                assert words_of(context.to_text()) >= spoken
        if any(of == tenant and space for (of, _), space in histories.spaces.items()):
            with pytest.raises(UsageError, match="space=ALL"):
                memory.search("animal")
            with pytest.raises(UsageError, match="space=ALL"):
                memory.recall("animal")
        else:
            memory.search("animal")


STEPS = 100


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("place", "histories"), [("memory", 100), ("sqlite", 100), ("postgres", 10)]
)
def test_long_histories_mix_nothing_in_any_store(tmp_path, place, histories):
    """10,000 random steps in SQLite and in memory, 1,000 in PostgreSQL: no foreign word."""
    if place == "postgres":
        postgres_server.run("DROP SCHEMA IF EXISTS hiermem CASCADE")
    rng, opened = random.Random(46), {
        "memory": lambda name: Memory(store=MemoryStore()),
        "sqlite": lambda name: Memory.open(tmp_path / f"{name}.db"),
        "postgres": lambda name: Memory.open(postgres_server.dsn(), tenant=name),
    }  # fmt: skip
    for number in range(histories):
        steps = [tuple(map(rng.choice, (ACTIONS, TENANTS, "stuv", SPACES))) for _ in range(STEPS)]
        with opened[place](f"spaces-{number}") as own:
            live_through(steps, own, f"other-{number}")


def test_nothing_but_a_space_of_its_name_makes_a_member():
    """Broken, a typo in a name begins a memory of its own, and nobody notices."""
    with Memory.open(":memory:") as memory:
        memory.session("s").append(Message.user("Hi."))
        for call in (
            lambda: memory.session("new", space="adda").append(Message.user("Hi.")),
            lambda: memory.session("new", space="adda").context(),
            lambda: memory.session("s").join("adda"),
        ):
            with pytest.raises(NotFoundError, match="adda"):
                call()
        assert memory.spaces() == []
        # Nor do metadata that users fill in make a session a member of any space.
        for call in (
            lambda: memory.session("s").set_metadata({"hiermem/space": "ada"}),
            lambda: memory.session("t", metadata={"hiermem/member": ""}),
        ):
            with pytest.raises(UsageError, match="hiermem"):
                call()


def test_recalled_memory_is_not_learnt_again(tmp_path):
    """Broken, a wish comes back from a prompt after it was erased or withdrawn at its source."""
    with Memory.open(tmp_path / "chat.db") as memory:
        memory.space("ada", person="Ada").files()
        january = memory.session("january", space="ada")
        january.append(Message.user("Always answer in metric units."), Message.assistant("Yes."))
        july = memory.session("july", space="ada")
        july.append(Message.user("How far is it?"))
        prompt = july.context(4_000, query="metric units").to_openai()
        assert "metric units" in prompt[0]["content"]
        again = memory.session("again", space="ada")
        again.append(Message.user(july.context(4_000, query="metric units").to_text()))
        again.append(Message.user(prompt[0]["content"]))
        synced = memory.session("synced", space="ada")
        synced.sync(prompt)
        (stored,) = synced.messages()
        assert "metric" not in str(stored.content)
        january.erase([0])
        assert not again.pins()
        assert [line for line in memory.space("ada").about() if line.place == "wish"] == []
