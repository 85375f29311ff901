"""The order of a run: lower levels first, older first, parents when their children are settled."""

import random
from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from hiermem.summaries.agenda import Agenda
from hiermem.types import Node, Span

NOW = datetime(2024, 3, 1, tzinfo=UTC)


def node(level, ordinal, children=()):
    return Node(
        id=f"L{level}.{ordinal}", level=level, ordinal=ordinal, thread=None, span=Span(0, 1),
        windows=(0, 1), children=tuple(children), messages=1, input_size=1, allotted=1,
        input_tokens=1, allotted_tokens=1, verbatim=False, first_at=NOW, last_at=NOW,
    )  # fmt: skip


def tree(width, fan):
    """Give levels of nodes over ``width`` windows, ``fan`` children each; the rest stays open."""
    levels = {1: [node(1, n) for n in range(width)]}
    while len(levels[max(levels)]) >= fan:
        below, level = levels[max(levels)], max(levels) + 1
        levels[level] = [
            node(level, n, [c.id for c in below[n * fan : (n + 1) * fan]])
            for n in range(len(below) // fan)
        ]
    return levels


class Run:
    """Drives an agenda over a tree, with a store that knows what is done."""

    def __init__(self, levels, done=(), limit=4):
        self.levels, self.done, self.limit = levels, set(done), limit
        self.agenda = Agenda({level: len(nodes) for level, nodes in levels.items()})
        self.pages = 0

    def next(self):
        while True:
            found = self.agenda.next()
            if not isinstance(found, tuple):
                return found
            level, after = found
            page = [n for n in self.levels[level] if n.ordinal > after and n.id not in self.done]
            self.pages += 1
            self.agenda.add(level, page[: self.limit], limit=self.limit)

    def settle(self, node):
        self.done.add(node.id)
        self.agenda.settle(node.id)


def test_one_at_a_time_everything_comes_in_order_of_level_and_age():
    run, order = Run(tree(27, 3)), []
    while (found := run.next()) is not None:
        order.append((found.level, found.ordinal))
        run.settle(found)
    assert order == sorted(order)
    assert len(order) == 27 + 9 + 3 + 1


@given(
    width=st.integers(0, 60),
    fan=st.integers(2, 5),
    hands=st.integers(1, 9),
    limit=st.integers(1, 7),
    seed=st.integers(0, 1000),
    failing=st.sets(st.integers(0, 59), max_size=5),
)
def test_whatever_ends_first_each_node_is_made_once_and_never_before_its_children(
    width, fan, hands, limit, seed, failing
):
    levels, chance = tree(width, fan), random.Random(seed)
    already = {n.id for n in levels[1] if chance.random() < 0.3}
    run, at_work, made = Run(levels, already, limit), [], []
    lost = {f"L1.{n}" for n in failing if n < width} - already
    while True:
        while len(at_work) < hands and (found := run.next()) is not None:
            assert all(child in run.done for child in found.children)
            at_work.append(found)
        if not at_work:
            break
        ended = at_work.pop(chance.randrange(len(at_work)))
        if ended.id in lost:
            run.agenda.fail(ended.id)
            continue
        made.append(ended.id)
        run.settle(ended)
    assert len(made) == len(set(made))
    below_lost = set(lost)
    for level in sorted(levels)[1:]:
        below_lost |= {n.id for n in levels[level] if below_lost & set(n.children)}
    everything = {n.id for nodes in levels.values() for n in nodes}
    assert set(made) == everything - already - below_lost
    assert run.agenda.open == 0


def test_free_hands_take_ready_parents_while_the_last_children_are_at_work():
    run = Run(tree(6, 3))
    at_work = [run.next() for _ in range(6)]
    assert run.next() is None
    for child in at_work[:3]:
        run.settle(child)
    assert run.next().id == "L2.0"


def test_nodes_sealed_after_the_run_began_are_left_to_the_next():
    agenda = Agenda({1: 2})
    agenda.add(1, [node(1, n) for n in range(4)])
    assert [agenda.next().id, agenda.next().id, agenda.next()] == ["L1.0", "L1.1", None]


def test_a_parent_made_dirty_is_taken_in_once_or_brought_up_to_date_where_it_waits():
    parent = node(2, 0, ["L1.0", "L1.1"])
    agenda = Agenda({1: 2, 2: 1})
    agenda.add(1, [node(1, 0), node(1, 1)])
    assert not agenda.mark_dirty(replace(parent, dirty=True)), "its page is still to come"
    first, second = agenda.next(), agenda.next()
    agenda.add(2, [parent])
    assert not agenda.mark_dirty(replace(parent, dirty=True, version=9)), (
        "it waits for its children"
    )
    agenda.settle(first.id)
    agenda.settle(second.id)
    taken = agenda.next()
    assert taken.version == 9
    agenda.settle(taken.id)
    assert agenda.mark_dirty(replace(parent, dirty=True, version=11))
    assert agenda.next().version == 11


def test_what_was_put_back_comes_again():
    agenda = Agenda({1: 1})
    agenda.add(1, [node(1, 0)])
    taken = agenda.next()
    assert agenda.next() is None
    agenda.put_off(replace(taken, version=3))
    assert agenda.next().version == 3
