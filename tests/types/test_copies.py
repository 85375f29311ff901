"""What the library returns can be sent to another process, copied and written as JSON."""

import copy
import dataclasses
import inspect
import json
import pickle

import pytest
from stand_ins import talk

from hiermem import HierarchyConfig, Memory, Message, UpdatePolicy, errors
from hiermem.types.brief import FrozenDict


@pytest.fixture(scope="module")
def values() -> dict[str, object]:
    """Return one value of each kind that calls return."""
    with Memory.open(":memory:") as memory:
        session = memory.session("a", metadata={"user": "ada"})
        session.append(talk(60, "Pump {n} runs at {n}7 rpm. " * 12))
        space = memory.space("p", rules="# Files\n- a.md: x")
        return {
            "message": Message.user("x", metadata={"a": [1, {"b": True}]}),
            "plan": session.update(dry_run=True),
            "report": session.update(),
            "stored": session.messages(0, 1)[0],
            "record": memory.sessions()[0],
            "hit": session.search("pump 7")[0],
            "summary": session.summaries(1)[0],
            "evidence": session.recall("pump 7", max_tokens=500),
            "forest": session.forest(),
            "status": session.status(),
            "metrics": session.metrics(),
            "run": memory.run(memory.runs()[0].id),
            "context": session.context(2_000),
            "extraction": session.extract(),
            "batch": memory.update_all(),
            "check": memory.check(),
            "note": space.note("n", agent="q"),
            "consolidation": space.consolidate(),
            "history": space.history(),
            "edit": session.edit(2, "Pump 2 is off."),
            "receipt": session.erase([0]),
            "config": HierarchyConfig.by_tokens(),
            "policy": UpdatePolicy(),
        }


def test_every_value_survives_a_pickle_and_every_kind_of_copy(values: dict[str, object]) -> None:
    """A web handler caches them, and a worker process sends them back."""
    for name, value in values.items():
        assert pickle.loads(pickle.dumps(value)) == value, name
        assert copy.copy(value) == value, name
        assert copy.deepcopy(value) == value, name
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            dataclasses.asdict(value)


KINDS = [
    kind
    for name, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, errors.HiermemError) and kind.__module__ == errors.__name__
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_can_be_sent_to_another_process(kind) -> None:
    """An error that cannot is replaced by one about pickling, and the reason is lost."""
    values = {"str": "s", "int": 3, "float": 1.5, "bool": True}
    parameters = inspect.signature(kind.__init__).parameters.values()
    given = {
        each.name: values.get(str(each.annotation).split(" |")[0], "x")
        for each in parameters
        if each.default is each.empty
        and each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
        and each.name != "self"
    }  # fmt: skip
    error = kind(**given) if given else kind()
    for made in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(made) is kind
        assert (str(made), made.args, made.__dict__) == (str(error), error.args, error.__dict__)
        assert made.retryable == error.retryable


def test_a_frozen_mapping_refuses_every_change() -> None:
    """Records share it; changed in one place, it would change in all."""
    frozen = FrozenDict({"a": 1})
    changes = [
        lambda: frozen.__setitem__("b", 2),
        lambda: frozen.__delitem__("a"),
        lambda: frozen.update(b=2),
        lambda: frozen.setdefault("b", 2),
        lambda: frozen.pop("a"),
        frozen.popitem,
        frozen.clear,
        lambda: frozen.__ior__({"b": 2}),
    ]
    for change in changes:
        with pytest.raises(TypeError, match="does not change"):
            change()
    assert frozen == {"a": 1}
    assert json.loads(json.dumps(frozen)) == {"a": 1}
    assert type(copy.deepcopy(frozen)) is type(pickle.loads(pickle.dumps(frozen))) is FrozenDict
    assert (frozen | {"b": 2}) == {"a": 1, "b": 2}
