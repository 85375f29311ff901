"""A session is named by its title, its id, or the beginning of either, and never by chance."""

from datetime import UTC, datetime, timedelta
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiermem import Memory, Message, NotFoundError, UsageError
from hiermem.api.find import choose, families
from hiermem.types import SessionRecord

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def record(name, title=None, source=None):
    return SessionRecord(name, title, (), "", "", NOW, NOW, forked_from=source)


MANY = [
    record("9a2ef80f-58ee", "Conversation 4"),
    record("9a2ef80f-58ee~1", "Conversation 4", "9a2ef80f-58ee"),
    record("9a2ef80f-58ee~1~2", "Conversation 4", "9a2ef80f-58ee~1"),
    record("9a77c0de-0000", "Conversation 44"),
    record("x", "the  Boiler\nin spring"),
    record("y", "Twins"),
    record("z", "Twins"),
    record("Twin"),
    record("Ada and Ben"),
]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("9a2ef80f-58ee", "9a2ef80f-58ee"),
        ("9a2ef80f-58ee~1", "9a2ef80f-58ee~1"),
        ("9a2", "9a2ef80f-58ee"),
        ("Conversation 4", "9a2ef80f-58ee"),
        ("conversation 44", "9a77c0de-0000"),
        ("The boiler in spring", "x"),
        ("the boiler in…", "x"),
        ("Twin", "Twin"),
        ("ada", "Ada and Ben"),
        ("9A2EF80F-58EE", "9a2ef80f-58ee"),
    ],
)
def test_a_name_means_one_session_or_the_source_of_its_forks(name, meant):
    assert choose(name, MANY).id == meant


@given(
    title=st.sampled_from(
        ["Café in Zürich", "Ёлка и ёж", "한국어 수업", "Tiếng Việt", "Ångström ﬁve"]
    ),
    stored=st.sampled_from(["NFC", "NFD", "NFKC", "NFKD"]),
    given_=st.sampled_from(["NFC", "NFD", "NFKC", "NFKD"]),
    part=st.sampled_from([None, 5]),
    by_id=st.booleans(),
)
def test_a_name_is_found_in_every_normal_form(title, stored, given_, part, by_id):
    """Broken, a title that was imported from a Mac is not found by typing it."""
    kept = normalize(stored, title)
    records = [*MANY, record(kept) if by_id else record("c1", kept)]
    wanted = records[-1].id
    assert choose(normalize(given_, title[:part]), records).id == wanted


@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        (
            "9a",
            UsageError,
            "2 sessions begin with '9a': Conversation 4 (9a2ef80f-58ee), Conversation 44 (9a77",
        ),
        ("twins", UsageError, "2 sessions begin with 'twins': Twins (y), Twins (z); write more"),
        ("boiler", NotFoundError, "session 'boiler' does not exist; there is the Boiler in"),
        (
            "Conversatoin 44",
            NotFoundError,
            "there is Conversation 44 (9a77c0de-0000), Conversation 4",
        ),
        ("quartz", NotFoundError, "session 'quartz' does not exist; list the sessions"),
        (" ", NotFoundError, "session ' ' does not exist"),
    ],
)
def test_what_means_several_or_none_names_the_nearest(name, error, says):
    with pytest.raises(error) as caught:
        choose(name, MANY)
    assert says in str(caught.value)


def test_an_irreversible_act_takes_no_beginning():
    """Broken, a repeated 'delete talk --yes' erases another session that begins so."""
    for name in ("9a2", "Conv", "the boiler"):
        with pytest.raises(NotFoundError, match="whole title or id"):
            choose(name, MANY, whole=True)
    assert choose("the boiler in spring", MANY, whole=True).id == "x"


@given(st.data(), st.lists(st.text("ab~", min_size=1, max_size=12), unique=True, max_size=12))
def test_each_session_is_reached_by_what_is_printed_of_its_id(data, ids):
    """Broken, an error names a session by an id that means another, or several."""
    records = [
        record(name, source=data.draw(st.sampled_from([None, *ids[:number]])))
        for number, name in enumerate(ids)
    ]
    for each in records:
        assert choose(each.id, records) == each
    grouped = families(records, records)
    assert sorted(each.id for group in grouped for each in group) == sorted(ids)
    assert [group[0].forked_from for group in grouped] == [None] * len(grouped)


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=8))
def test_the_newest_message_comes_first(tmp_path_factory, days):
    """Messages may be older than their import; a session may be empty."""
    with Memory.open(tmp_path_factory.mktemp("newest") / "m.db") as memory:
        for number, (day, _) in enumerate(days):
            said = Message.user("x", created_at=NOW - timedelta(days=400 + day))
            memory.session(f"s{number}").append(said)
        for number, (_, live) in enumerate(days):
            if live:
                memory.session(f"s{number}").append(Message.user("now"))
        found = memory.families(apart=True)
        times = [each.last for each in found]
        assert times == sorted(times, reverse=True)
        assert len(found) == len(days)
        assert memory.families(limit=2) == found[:2]
        if days:
            assert memory.find("@last").id == found[0].session.id


def test_a_session_stands_with_its_forks_and_the_times_of_all(tmp_path):
    """Broken, a conversation that went on in a fork stands where it stopped itself."""
    at = [NOW + timedelta(days=n) for n in range(4)]
    with Memory.open(tmp_path / "m.db") as memory:
        first = memory.session("a", title="Café plans")
        first.append([Message.user("Hello.", created_at=at[0])])
        memory.session("b").append(Message.user("Hello.", created_at=at[1]))
        first.fork("a2").append(Message.user("And on.", created_at=at[2]))
        first.fork("a3")
        told = [(f.session.id, f.forks, f.first, f.last) for f in memory.families()]
        assert told == [("a", ("a3", "a2"), at[0], at[2]), ("b", (), at[1], at[1])]
        for words in (["cafe\u0301"], ["PLANS", "caf"], ["a"]):
            assert [each.session.id for each in memory.families(words)][:1] == ["a"]
        assert memory.families(["b"], space=None)[0].session.id == "b"
        assert memory.families(metadata={"user": "x"}) == []
        memory.session("b").append(Message.user("Later.", created_at=at[3]))
        memory.session("b").fork("b2")
        assert memory.find("@last").id == "b"
