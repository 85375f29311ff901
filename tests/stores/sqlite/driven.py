"""What the tests of the SQLite driver share: small commits, and operations run on this thread."""

import threading
import time

from hiermem.records.tables import Commit, Key, Scan


def run(operation):
    """Run an operation to its end on this thread; it must not suspend."""
    try:
        operation.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("the operation waits for something")


def counter(name="n"):
    return Key("counters", ("t", "k", name))


def put(text, name="v", *, expect=None, durable=True):
    """Return a commit that writes one text under a name, if the counter "n" is as expected."""
    expected = {} if expect is None else {counter(): expect}
    return Commit(expected, puts={"views": [("t", "s", name, text)]}, durable=durable)


def adding(number=1, name="n"):
    return Commit(adds={counter(name): number})


def count(store, name="n"):
    """Return the value of a counter."""
    (row,) = run(store.read([counter(name)], [])).rows
    return row[3] if row else 0


def texts(store):
    """Return all texts by name."""
    (rows,) = run(store.read([], [Scan("views", ("t", "s"))])).ranges
    return {row[2]: row[3] for row in rows}


class Threads:
    """Commits on threads of their own; each outcome is what it returned or raised."""

    def __init__(self, store, commits):
        self.outcomes = [None] * len(commits)
        self._threads = [
            threading.Thread(target=self._commit, args=(store, place, one))
            for place, one in enumerate(commits)
        ]

    def _commit(self, store, place, change):
        try:
            self.outcomes[place] = run(store.commit(change))
        except BaseException as error:  # noqa: BLE001 - it is the outcome
            self.outcomes[place] = error

    def start(self):
        for thread in self._threads:
            thread.start()

    def join(self):
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()
        return self.outcomes


def together(store, commits):
    """Commit all of them, in this order, while they wait for one turn; return the outcomes."""
    with store._my_turn():
        threads = []
        for number, one in enumerate(commits, 1):
            threads.append(Threads(store, [one]))
            threads[-1].start()
            wait_for(lambda number=number: len(store._queue) == number)
    return [outcome for each in threads for outcome in each.join()]


def wait_for(condition):
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.001)


class Watched:
    """Stands before the writer's connection and notes its statements; some can be made to fail."""

    def __init__(self, store, failing=None):
        self.inner, self.failing, self.statements = store._writer.connection, failing, []
        store._writer.connection = self

    def execute(self, sql, *args):
        self.statements.append(sql)
        if self.failing is not None:
            self.failing(sql)
        return self.inner.execute(sql, *args)

    def __getattr__(self, name):
        return getattr(self.inner, name)
