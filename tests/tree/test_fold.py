"""The fold against a slow reading of the specification: P4, P5, P8 and the published examples.

``Slow`` keeps every message in lists and looks at all of them at each step, rule by rule in the
specification's order. It shares no code with ``hiermem.tree`` but the values.
"""

import json
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest
from damage import damaged_text
from hypothesis import given
from hypothesis import strategies as st
from sampling import drawn

from hiermem.config import HierarchyConfig, LevelConfig
from hiermem.errors import StoreCorruptError, UsageError
from hiermem.tree.fold import Folded, SessionState, arrive, close, flush, idle_tick, reopen, tick
from hiermem.tree.turns import Arrival, Slice
from hiermem.types import Node, Position, Span

T0 = datetime(2024, 3, 15, 9, 0, tzinfo=UTC)


@dataclass(eq=False)
class Group:
    """An exchange group: its messages' items, its unanswered calls as (id, index)."""

    items: list = field(default_factory=list)
    waiting: list = field(default_factory=list)
    messages: int = 0
    open: bool = True


@dataclass(eq=False)
class Item:
    """A message, or a slice of one, in its thread."""

    index: int
    begin: Position
    end: Position
    size: int
    tokens: int
    at: datetime
    role: str
    inner: bool  # a slice that is not the message's last
    group: Group | None
    roles: list  # of all messages of the thread up to this one


class Slow:
    def __init__(self, config):
        self.config = config
        self.next = 0
        self.windows: dict[str, list[Item]] = {}
        self.roles: dict[str, list[str]] = {}
        self.groups: dict[str, Group | None] = {}
        self.late: dict[str, list[str]] = {}
        self.due: dict[str, bool] = {}
        self.lasts: dict[str, int] = {}
        self.previous: dict[str, Item] = {}  # the last item sealed in the thread
        self.sealed: list[tuple[str, list[Item], bool]] = []
        self.flags: set[tuple[int, str]] = set()
        self.nodes: dict[str, Node] = {}
        self.open: dict[int, list[str]] = {}  # level -> children of its open group

    # points

    def whole(self, item):
        if item.inner:
            return False
        group = item.group
        return group is None or (not group.open and group.items[-1] is item)

    def safe(self, item):
        if not self.whole(item):
            return False
        if self.config.boundary == "message" or item.role == "assistant":
            return True
        spoken = [role for role in item.roles if role != "system"][-10:]
        return spoken == ["user"] * 10

    def last_point(self, window, holds):
        """The number of items up to the last point of the window that ``holds``, or 0."""
        return max((n for n, item in enumerate(window, 1) if holds(item)), default=0)

    # closing

    def seal(self, thread, count):
        window = self.windows[thread]
        items, self.windows[thread] = window[:count], window[count:]
        assert items
        self.due[thread] = False
        before = self.previous.get(thread)
        linked = before is not None and (
            before.index == items[0].index
            or (before.group is not None and before.group is items[0].group)
        )
        self.previous[thread] = items[-1]
        self.sealed.append((thread, items, linked))
        self.grow(thread, items, linked)

    def end_group(self, thread):
        group = self.groups.get(thread)
        if group is None:
            return
        group.open = False
        self.groups[thread] = None
        for call, index in group.waiting:
            self.flags.add((index, "missing_result"))
            self.late.setdefault(thread, []).append(call)
        self.late[thread] = self.late.get(thread, [])[-100:]

    # rules

    def rule_1(self, thread, now):
        window, config = self.windows[thread], self.config
        if not window or config.seal_policy == "size":
            return
        age = max(now - window[0].at, timedelta(0))
        silence = max(now - window[-1].at, timedelta(0))
        size = sum(item.size for item in window)
        old = config.max_age is not None and age >= config.max_age
        silent = (
            config.flush_after is not None
            and silence > config.flush_after
            and size >= config.min_flush
        )
        if old or silent:
            if self.safe(window[-1]):
                self.seal(thread, len(window))
            else:
                self.due[thread] = True

    def arrive(self, a):
        config, thread = self.config, a.thread
        assert a.index == self.next
        self.next += 1
        window = self.windows.setdefault(thread, [])
        self.groups.setdefault(thread, None)
        if a.role == "user" or (a.role == "assistant" and not a.calls):
            self.end_group(thread)
        self.rule_1(thread, a.at)
        group = self.groups[thread]
        if a.size > config.hard_limit:  # rule 2
            assert a.slices
            window = self.windows[thread]
            before = [item for item in window if group is None or item.group is not group]
            if before:
                self.seal(thread, len(before))
            if self.windows[thread]:
                self.seal(thread, len(self.windows[thread]))
        else:  # rule 3
            while sum(i.size for i in self.windows[thread]) + a.size > config.hard_limit:
                window = self.windows[thread]
                count = self.last_point(window, self.safe)
                if sum(i.size for i in window[:count]) < config.target / 2:
                    count = self.last_point(window, self.whole)
                if not count:
                    break
                self.seal(thread, count)
        items = self.take(a)
        for item in items[:-1]:
            self.windows[thread].append(item)
            self.seal(thread, len(self.windows[thread]))
        self.windows[thread].append(items[-1])
        self.rule_4(thread)
        if config.max_messages is not None:  # rule 5
            window = self.windows[thread]
            if len(window) >= 1.5 * config.max_messages:
                turns = [n for n, item in enumerate(window) if n and item.role == "user"]
                count = turns[-1] if turns else self.last_point(window, self.safe)
                count = count or self.last_point(window, self.whole)
                if count:
                    self.seal(thread, count)
        self.lasts[thread] = a.index
        self.idle(a.index)

    def take(self, a):
        """Make the message's items and follow its thread's groups."""
        thread, group = a.thread, self.groups[a.thread]
        self.roles.setdefault(thread, []).append(a.role)
        roles = list(self.roles[thread])
        if a.calls:
            group = self.groups[thread] = group or Group()
            group.waiting += [(call, a.index) for call in a.calls]
        if a.role == "tool":
            waiting = [call for call, _ in group.waiting] if group else []
            name = a.result_of if a.result_of is not None else (waiting or [None])[0]
            late = self.late.get(thread, [])
            if name in waiting:
                del group.waiting[waiting.index(name)]
            elif name in late:
                late.remove(name)
                self.flags.add((a.index, "late_result"))
            else:
                self.flags.add((a.index, "orphan_result"))
        bounds = [Position(a.index, s.begin_char) for s in a.slices] or [Position(a.index)]
        sizes = [(s.size, s.tokens) for s in a.slices] or [(a.size, a.tokens)]
        ends = [*bounds[1:], Position(a.index + 1)]
        items = [
            Item(a.index, b, e, size, tokens, a.at, a.role, e.index == a.index, group, roles)
            for b, e, (size, tokens) in zip(bounds, ends, sizes, strict=True)
        ]
        if group is not None:
            group.items += items
            group.messages += 1
            if not group.waiting or group.messages == 100:
                self.end_group(thread)
        return items

    def rule_4(self, thread):
        config = self.config
        while window := self.windows[thread]:
            size = sum(item.size for item in window)
            full = self.due.get(thread, False)
            if config.seal_policy != "time":
                full = full or size >= config.target
                full = full or (
                    config.max_messages is not None and len(window) >= config.max_messages
                )
            if full and self.safe(window[-1]):
                self.seal(thread, len(window))
                return
            count = self.last_point(window[:-1], self.safe)
            least = round(config.target * (1 - config.tolerance), 6)
            if (
                config.seal_policy != "time"
                and size > round(config.target * (1 + config.tolerance), 6)
                and count
                and sum(item.size for item in window[:count]) >= least
            ):
                self.seal(thread, count)
                continue
            return

    def by_first_index(self):
        begun = [t for t, window in self.windows.items() if window]
        return sorted(begun, key=lambda t: self.windows[t][0].index)

    def idle(self, index):
        limit = 10 * self.config.max_messages if self.config.max_messages is not None else 100
        for thread in self.by_first_index():
            if index - self.lasts[thread] >= limit:
                self.end_group(thread)
                self.seal(thread, len(self.windows[thread]))
        for thread in [t for t, last in self.lasts.items() if index - last >= 2 * limit]:
            for kept in (self.roles, self.late, self.lasts, self.windows, self.groups):
                kept.pop(thread, None)
            self.previous.pop(thread, None)

    # events

    def edit(self, thread, index, size, tokens):
        for item in self.windows.get(thread, []):
            if item.index == index:
                item.size += size
                item.tokens += tokens

    def flush(self):
        for thread in self.by_first_index():
            count = self.last_point(self.windows[thread], self.whole)
            if count:
                self.seal(thread, count)

    def tick(self, now):
        for thread in self.by_first_index():
            self.rule_1(thread, now)

    def close(self):
        for thread in self.by_first_index():
            self.end_group(thread)
            self.seal(thread, len(self.windows[thread]))
        level = 2
        while len(self.roots()) > 1:
            group = self.open.setdefault(level, [])
            if len(group) > 1:
                self.group(level)
            elif group:
                self.open[level] = []
                self.join(level + 1, group[0])
            level += 1

    # levels

    def roots(self):
        return [node for node in self.nodes.values() if node.parent is None]

    def allot(self, level, size, tokens):
        if tokens <= self.config.verbatim_tokens:
            return size, tokens, True
        rule = self.config.level(level)
        most = rule.cap if rule.cap is not None else size
        allotted = min(size - 1, max(1, min(max(int(rule.target_ratio * size), rule.floor), most)))
        return allotted, min(tokens - 1, max(1, tokens * allotted // size)), False

    def put(self, level, thread, begin, end, windows, children, messages, sizes, times, linked):
        size, tokens = sizes
        ordinal = sum(node.level == level for node in self.nodes.values())
        allotted, allotted_tokens, verbatim = self.allot(level, size, tokens)
        node = Node(
            f"L{level}.{ordinal}", level, ordinal, thread, Span.between(begin, end), windows,
            children, messages, size, allotted, tokens, allotted_tokens, verbatim,
            min(times), max(times), linked, unit=self.config.unit,
        )  # fmt: skip
        self.nodes[node.id] = node
        self.join(level + 1, node.id)

    def grow(self, thread, items, linked):
        ordinal = len(self.sealed) - 1
        sizes = sum(i.size for i in items), sum(i.tokens for i in items)
        self.put(
            1, thread, items[0].begin, items[-1].end, (ordinal, ordinal + 1), (), len(items),
            sizes, [i.at for i in items], linked,
        )  # fmt: skip

    def join(self, level, child):
        rule, group = self.config.level(level), self.open.setdefault(level, [])
        most = rule.max_size if rule.max_size is not None else float("inf")

        def weight(ids):
            return sum(self.nodes[i].allotted for i in ids)

        if len(group) >= 2 and weight([*group, child]) > round(most * (1 + rule.tolerance), 6):
            self.group(level)
            group = self.open[level]
        group.append(child)
        covered = sum(self.nodes[i].messages for i in group)
        if len(group) >= 2 and (
            len(group) >= rule.fan_in
            or weight(group) >= most
            or (rule.max_messages is not None and covered >= rule.max_messages)
        ):
            self.group(level)

    def group(self, level):
        children, self.open[level] = self.open[level], []
        nodes = [self.nodes[i] for i in children]
        ordinal = sum(node.level == level for node in self.nodes.values())
        for node in nodes:
            self.nodes[node.id] = replace(node, parent=f"L{level}.{ordinal}")
        threads = {node.thread for node in nodes}
        self.put(
            level,
            nodes[0].thread if len(threads) == 1 else None,
            min(node.span.begin for node in nodes),
            max(node.span.end for node in nodes),
            (nodes[0].windows[0], nodes[-1].windows[1]),
            tuple(children),
            sum(node.messages for node in nodes),
            (sum(n.allotted for n in nodes), sum(n.allotted_tokens for n in nodes)),
            [n.first_at for n in nodes] + [n.last_at for n in nodes],
            False,
        )


class Log(list):
    """A log that prints one short line an entry, so that a failure can be read."""

    def __repr__(self):
        def line(e):
            if not isinstance(e, Arrival):
                return f"{e[0]} {e[1] or ''}"
            calls = f" calls {', '.join(e.calls)}" if e.calls else ""
            answers = f" answers {e.result_of}" if e.result_of else ""
            at = (e.at - T0).total_seconds()
            return f"{e.index} {e.thread} {e.role} {e.size} at {at:.0f}{calls}{answers}"

        return "\n".join(map(line, self))


class Script:
    """Turns drawn moves into a log, keeping the index, the clock and the names of calls."""

    def __init__(self, config):
        self.config, self.log, self.index, self.now, self.calls = config, Log(), 0, T0, 0
        self.unanswered, self.edited = [], {}

    def say(self, thread, role, size, *, calls=0, result_of=None, gap=1):
        self.now += timedelta(seconds=gap)
        names = tuple(f"c{self.calls + n}" for n in range(calls))
        self.calls += calls
        slices = self.slices(size) if size > self.config.hard_limit else ()
        tokens = self.tokens(size)
        if slices:
            tokens = sum(piece.tokens for piece in slices)
        self.log.append(
            Arrival(self.index, thread, role, size, tokens, self.now, names, result_of, slices)
        )
        self.index += 1
        return names

    def tokens(self, size):
        return size if self.config.unit == "tokens" else -(-size // 4)

    def slices(self, size):
        target, pieces, begin = self.config.target, [], 0
        while begin < size:
            # Slices of unequal sizes, as cuts at paragraphs give.
            length = min(size - begin, max(1, target - (7 * len(pieces)) % max(1, target // 2)))
            pieces.append(Slice(begin, length, self.tokens(length)))
            begin += length
        return tuple(pieces)

    def talk(self, thread, count, size, gap):
        for turn in range(count):
            self.say(thread, "assistant" if turn % 2 else "user", size, gap=gap)

    def crowd(self, thread, count, size, gap):
        for turn in range(count):
            self.say(thread, "system" if turn % 7 == 5 else "user", size, gap=gap)

    def loop(self, thread, rounds, calls, size, big, skip):
        """Rounds of calls with their results; the ``skip``-th result stays out."""
        said = 0
        for turn in range(rounds):
            names = self.say(thread, "assistant", size, calls=calls)
            for name in names:
                said += 1
                if said == skip:
                    self.unanswered.append((thread, name))
                    continue
                huge = big and (turn + said) % 5 == 2
                weight = self.config.hard_limit * 2 + 3 if huge else size
                self.say(thread, "tool", weight, result_of=name)

    def edit(self, back, size):
        """Give the message ``back`` before the end another size; a sliced one only grows."""
        said = [entry for entry in self.log if isinstance(entry, Arrival)]
        if said:
            a = said[-1 - back % len(said)]
            old = 0 if a.slices else self.edited.get(a.index, a.size)
            self.edited[a.index] = size
            tokens = self.tokens(size) - self.tokens(old)
            self.log.append(("edit", (a.thread, a.index, size - old, tokens)))

    def late(self, thread):
        name = self.unanswered.pop()[1] if self.unanswered else None
        self.say(thread, "tool", 3, result_of=name or "nobody")


def sizes(config):
    t, h = config.target, config.hard_limit
    return [
        1,
        5,
        t // 12 + 1,
        t // 5 + 1,
        t // 2,
        t // 3,
        t - 1 or 1,
        t,
        t + t // 5 + 1,
        h,
        h + 1,
        3 * h,
    ]


MOVES = (
    "talk", "talk", "talk", "crowd", "loop", "loop", "say", "late", "edit", "flush", "tick",
    "close",
)  # fmt: skip


@st.composite
def histories(draw, config, *, moves=14):
    script = Script(config)
    ladder = sizes(config)
    gaps = [0, 1, 30, 700, 1300, 4000, -50, -9000]
    for _ in range(draw(st.integers(0, moves))):
        move = draw(st.sampled_from(MOVES))
        thread = draw(st.sampled_from(["main", "main", "main", "side", "third"]))
        small = ladder[draw(st.integers(0, 4))]
        count = draw(st.sampled_from([1, 2, 3, 9, 10, 11, 15, 31]))
        gap = draw(st.sampled_from(gaps))
        if move == "talk":
            script.talk(thread, count, small, gap)
        elif move == "crowd":
            script.crowd(thread, count, small, gap)
        elif move == "loop":
            rounds, calls = draw(st.sampled_from([(1, 1), (1, 3), (40, 1), (6, 2), (1, 119)]))
            script.loop(thread, rounds, calls, small, draw(st.booleans()), draw(st.integers(0, 4)))
        elif move == "say":
            role = draw(st.sampled_from(["user", "assistant", "system", "tool"]))
            size = draw(st.sampled_from(ladder))
            calls = draw(st.integers(0, 2)) if role == "assistant" else 0
            script.say(thread, role, size, calls=calls, gap=gap)
        elif move == "late":
            script.late(thread)
        elif move == "edit":
            script.edit(count, draw(st.sampled_from(ladder)))
        elif move == "tick":
            script.log.append(("tick", script.now + timedelta(seconds=gap)))
        else:
            script.log.append((move, None))
    return script.log


@st.composite
def configs(draw):
    make = draw(st.sampled_from([HierarchyConfig.by_tokens, HierarchyConfig.by_chars]))
    settings = {
        "boundary": draw(st.sampled_from(["turn", "turn", "message"])),
        "seal_policy": draw(st.sampled_from(["hybrid", "hybrid", "size", "time"])),
    }
    if draw(st.booleans()):
        target = draw(st.sampled_from([10, 60, 101, 400]))
        settings |= {
            "target": target,
            "hard_limit": target * draw(st.sampled_from([2, 3])) // 2 + draw(st.integers(0, 1)),
            "tolerance": draw(st.sampled_from([0, 0.1, 0.2, 0.5])),
            "max_messages": draw(st.sampled_from([None, 1, 2, 5, 7, 10])),
            "max_age": draw(st.sampled_from([None, timedelta(minutes=10)])),
            "flush_after": draw(st.sampled_from([None, timedelta(minutes=10)])),
            "min_flush": draw(st.sampled_from([0, min(30, target)])),
            "verbatim_tokens": 20,
            "levels": (
                LevelConfig(target_ratio=0.5, style="detailed"),
                LevelConfig(
                    target_ratio=0.3,
                    style="thematic",
                    fan_in=draw(st.sampled_from([2, 3, 5])),
                    max_size=draw(st.sampled_from([None, 20, 90])),
                    max_messages=draw(st.sampled_from([None, 20])),
                    tolerance=draw(st.sampled_from([0, 0.2])),
                    floor=draw(st.sampled_from([0, 2])),
                    cap=draw(st.sampled_from([None, 30])),
                ),
            ),
        }
    return make(**settings)


class Session:
    """What a store would hold: the folds' effects, applied; the state goes through JSON."""

    def __init__(self, config):
        self.config, self.state = config, SessionState()
        self.nodes: dict[str, Node] = {}
        self.flags: list[tuple[int, str]] = []

    def apply(self, folded: Folded):
        for node in folded.nodes:
            assert node.id not in self.nodes, "a sealed node was made twice (P5)"
            self.nodes[node.id] = node
        for child, parent in folded.parents:
            assert self.nodes[child].parent is None, "a node changed its parent (P5)"
            self.nodes[child] = replace(self.nodes[child], parent=parent)
        self.flags += folded.flags
        text = folded.state.to_json()
        # 100 calls given up and 119 waiting in each of three threads, 40 children a level.
        assert len(text) < 30_000
        self.state = SessionState.from_json(text)
        assert self.state == folded.state
        assert self.state.to_json() == text
        for window in self.state.open_windows():
            assert len(window.strand.window.segments) <= 4, "a window grows with its messages"

    def run(self, log, cuts=()):
        """Play the log; messages between two ``cuts`` (places in the log) go in one call."""
        batch: list[Arrival] = []
        for place, entry in enumerate(log):
            event = not isinstance(entry, Arrival)
            if batch and (event or place in cuts):
                self.apply(arrive(self.state, batch, self.config))
                batch = []
            if not event:
                batch.append(entry)
                continue
            kind, now = entry
            if kind == "edit":
                thread, index, size, tokens = now
                self.state = self.state.with_size(thread, index, size=size, tokens=tokens)
            elif kind == "flush":
                self.apply(flush(self.state, self.config))
            elif kind == "tick":
                self.apply(tick(self.state, now, self.config))
            else:
                self.apply(close(self.state, self.config))
                self.apply(reopen(self.state))
        if batch:
            self.apply(arrive(self.state, batch, self.config))
        return self


def slowly(config, log):
    slow = Slow(config)
    for entry in log:
        if isinstance(entry, Arrival):
            slow.arrive(entry)
        elif entry[0] == "flush":
            slow.flush()
        elif entry[0] == "tick":
            slow.tick(entry[1])
        elif entry[0] == "edit":
            slow.edit(*entry[1])
        else:
            slow.close()
    return slow


MANY = drawn(250)


@drawn(500)
@given(st.data())
def test_p4_the_fold_equals_the_slow_reading_however_a_log_is_cut_into_appends(data):
    config = data.draw(configs())
    log = data.draw(histories(config))
    step = data.draw(st.sampled_from([1, 1, 5, 1000]))
    cuts = {*range(0, len(log), step), *data.draw(st.lists(st.integers(0, len(log)), max_size=8))}
    session, slow = Session(config).run(log, cuts), slowly(config, log)
    assert Session(config).run(log).state.to_json() == session.state.to_json()
    assert list(session.nodes.values()) == list(slow.nodes.values())
    assert sorted(session.flags) == sorted(slow.flags)
    ids = [root.id for root in session.state.roots()]
    assert ids == [n.id for n in sorted(slow.roots(), key=lambda n: n.windows)]
    left = {w.thread: w for w in session.state.open_windows()}
    assert set(left) == {t for t, w in slow.windows.items() if w}
    for thread, window in left.items():
        items = slow.windows[thread]
        assert window.begin == items[0].begin
        assert window.last_index == items[-1].index
        assert window.messages == len(items)
        assert window.size == sum(item.size for item in items)
        assert window.tokens == sum(item.tokens for item in items)
        assert window.due == slow.due.get(thread, False)


@MANY
@given(st.data())
def test_a_closed_session_has_one_root_and_takes_no_message_until_it_is_reopened(data):
    config = data.draw(configs())
    session = Session(config).run(data.draw(histories(config)))
    index = session.state.next_index
    session.apply(close(session.state, config))
    assert session.state.closed
    assert len(session.state.roots()) == (1 if index else 0)
    assert session.state.open_windows() == ()
    again = close(session.state, config)
    assert (again.nodes, again.parents) == ((), ())
    late = Arrival(index, "main", "user", 5, 5, T0)
    with pytest.raises(UsageError, match="closed"):
        arrive(session.state, [late], config)
    session.apply(reopen(session.state))
    session.apply(arrive(session.state, [late], config))
    assert session.state.next_index == index + 1
    session.apply(close(session.state, config))
    assert len(session.state.roots()) == 1


TOKENS = HierarchyConfig.by_tokens()


def chat(count, *, size=20, first="user", thread="main", start=0):
    roles = ["user", "assistant"] if first == "user" else ["assistant", "user"]
    return [
        Arrival(start + n, thread, roles[n % 2], size, size, T0 + timedelta(seconds=n))
        for n in range(count)
    ]


def spans(session, level):
    return [(n.span.start, n.span.stop) for n in session.nodes.values() if n.level == level]


def test_an_edit_changes_sizes_only_and_the_next_arrival_looks_at_them():
    session = Session(TOKENS).run(chat(3))
    state = session.state.with_size("main", 1, size=2_500, tokens=2_500)
    assert state.with_size("other", 1, size=5, tokens=5) == state
    assert state.open_windows()[0].size == 2_560
    folded = arrive(state, chat(1, start=3), TOKENS)
    assert [n.span for n in folded.nodes] == [Span(0, 2)]
    assert folded.nodes[0].input_size == 2_540


def test_a_gap_in_the_indices_is_refused():
    with pytest.raises(UsageError, match="0 is next"):
        arrive(SessionState(), chat(1, start=1), TOKENS)


def test_a_disabled_session_seals_nothing_but_follows_its_groups():
    config = HierarchyConfig.by_tokens(enabled=False)
    log = [*chat(40), Arrival(40, "main", "tool", 5, 5, T0, result_of="nobody")]
    session = Session(config).run([*log, ("flush", None), ("tick", T0), ("close", None)])
    assert session.nodes == {}
    assert session.flags == [(40, "orphan_result")]
    assert session.state.open_windows()[0].messages == 41


DAMAGED = arrive(
    SessionState(),
    [replace(each, thread=("main", "aside")[each.index % 5 == 0]) for each in chat(300, size=90)]
    + [Arrival(300, "main", "assistant", 90, 20, T0 + timedelta(days=1), calls=("c1",))],
    TOKENS,
).state.to_json()


@given(st.data())
@drawn(2_000, 300)
def test_a_damaged_state_is_used_to_an_end_or_said_to_be_damaged(data):
    """Broken, a damaged file ends an application by an error that it does not expect."""
    whole = json.loads(DAMAGED)
    text = DAMAGED
    match data.draw(st.sampled_from(["outside", "thread", "group"])):
        case "outside":
            text = data.draw(damaged_text(text))
        case "thread":
            thread = data.draw(st.sampled_from(sorted(whole[5])))
            whole[5][thread][1] = data.draw(damaged_text(whole[5][thread][1]))
            text = json.dumps(whole)
        case "group":
            level = data.draw(st.sampled_from([n for n, group in enumerate(whole[4]) if group]))
            whole[4][level] = data.draw(damaged_text(whole[4][level]))
            text = json.dumps(whole)
    with suppress(StoreCorruptError):
        state = SessionState.from_json(text)
        state.open_windows()
        state.roots()
        state.rewound("tokens", "chars")
        if state.next_index == 301:
            said = [replace(each, index=each.index + 301) for each in chat(40, size=90)]
            arrive(state, said, TOKENS)


def test_an_idle_session_is_due_the_longest_time_that_has_passed_and_no_earlier():
    hour, minutes = timedelta(hours=1), timedelta(minutes=20)
    config = HierarchyConfig.by_chars(max_age=hour, min_flush_chars=300)
    said = [Arrival(n, "main", ("user", "assistant")[n % 2], 100, 25, T0) for n in range(4)]
    small, large = (arrive(SessionState(), said[:n], config).state for n in (2, 4))
    assert idle_tick(large, config, minutes) is None
    found = idle_tick(large, config, minutes + timedelta(seconds=1))
    assert found is not None
    assert found[0] - T0 == minutes + timedelta(microseconds=1), "a silence is longer than that"
    assert len(found[1].nodes) == 1
    assert idle_tick(small, config, hour) is None, "it does not hold min_flush"
    found = idle_tick(small, config, 9 * hour)
    assert found is not None
    assert found[0] == T0 + hour, "not the present"
    assert idle_tick(found[1].state, config, 9 * hour) is None, "there is nothing left to close"
    off = HierarchyConfig.by_chars(enabled=False)
    assert idle_tick(large, off, 9 * hour) is None
