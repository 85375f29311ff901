"""Summaries on a shelf: read once, kept in blocks that are not trusted, lending what they know."""

from datetime import UTC, datetime

from hiermem.search.index import Index, collect
from hiermem.search.query import read_query
from hiermem.search.summary_index import SummaryIndex, boost
from hiermem.types import Message, Node, Revision, Span, StoredMessage, Summary

NOON = datetime(2024, 3, 15, 12, tzinfo=UTC)


def summary(ordinal, text):
    start = 10 * ordinal
    node = Node(
        id=f"L1.{ordinal}", level=1, ordinal=ordinal, thread="main",
        span=Span(start, start + 10), windows=(ordinal, ordinal + 1),
        children=(), messages=10, input_size=100, allotted=50, input_tokens=100,
        allotted_tokens=50, verbatim=False, first_at=NOON, last_at=NOON, revision=1,
    )  # fmt: skip
    revision = Revision(node.id, 1, text, len(text) // 4, "in", "out", "s", "detailed", "m", NOON)
    return Summary("s", node, revision)


def index_of(texts, *, thread="main"):
    return Index(
        collect(
            [
                StoredMessage(
                    n, Message.user(text, created_at=NOON, thread=thread), tokens=1, size=1, hash=""
                )
                for n, text in enumerate(texts)
            ],
            lambda text: len(text) // 4,
        )
    )


def test_a_summary_counts_as_a_whole_however_long_it_is():
    """The words of a question may stand in different passages of one summary."""
    long = "\n".join(["The violin was sold."] + ["Nothing else happened here."] * 99 + ["In May."])
    summary_index = SummaryIndex({}, {}).refreshed(
        [summary(0, long + " Ada took the ferry."), summary(1, "the ferry")], {}
    )
    scores = summary_index.levels[1].ask(read_query("violin ferry"))
    assert len(summary_index.levels[1].index) > 2
    assert scores.shape == (2,)
    assert scores[0] > 0
    assert scores[1] > 0
    assert summary_index.levels[1].ask(read_query("zeppelin")).tolist() == [0, 0]


def test_a_summary_lends_to_what_it_covers_in_its_thread_and_least_to_the_long():
    texts = ["short remark"] * 20
    texts[3] = "a very long remark " * 100
    index = index_of(texts)
    summary_index = SummaryIndex({}, {}).refreshed(
        [summary(0, "the violin"), summary(1, "the ferry")], {}
    )
    row = summary_index.levels[1]
    given_ = boost(index, row, row.ask(read_query("violin")))
    of = {int(m): float(v) for m, v in zip(index.units.message, given_, strict=True)}
    assert of[0] > 0.9
    assert of[3] < 0.2
    assert all(of[n] == 0 for n in range(10, 20))
    other = index_of(texts, thread="side")
    assert not boost(other, row, row.ask(read_query("violin"))).any()
