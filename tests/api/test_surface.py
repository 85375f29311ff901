"""The public face does not change by accident: names, signatures, and both faces alike.

A wanted change is written down by ``HIERMEM_WRITE_SURFACE=1 pytest tests/api``, and then reviewed
as the difference of ``surface.txt``.
"""

import inspect
import os
import pydoc
import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_type_hints, is_typeddict

import pydantic
import pytest

import hiermem
import hiermem.published
from hiermem import (
    AsyncMemory,
    AsyncSession,
    AsyncSpace,
    ContextWindowManager,
    Memory,
    Session,
    Space,
    errors,
)
from hiermem.types import AsyncGraph, AsyncWorker, Graph, Manager, Worker

#: What can be imported from hiermem, and what from hiermem.types alone.
PUBLIC = {name: getattr(hiermem, name) for name in hiermem.__all__ if name != "__version__"}
RESULTS = {
    name: getattr(hiermem.types, name)
    for name in hiermem.types.__all__
    if name not in PUBLIC and inspect.isclass(getattr(hiermem.types, name))
}
KEPT = Path(__file__).with_name("surface.txt")


def signature(function) -> str:
    """Give names, order, kinds and defaults; annotations are the type checkers' business."""
    found = inspect.signature(function)
    bare = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in found.parameters.values()
    ]
    text = str(found.replace(parameters=bare, return_annotation=inspect.Signature.empty))
    return re.sub(r"<function (\w+) at 0x[0-9a-f]+>", r"\1", text)


def members(owner) -> list[str]:
    """Give the public methods with their signatures, and the properties."""
    lines = []
    for name in sorted(dir(owner)):
        if name.startswith("_"):
            continue
        member = inspect.getattr_static(owner, name)
        if isinstance(member, property):
            lines.append(f"{owner.__name__}.{name}")
        elif isinstance(member, (classmethod, staticmethod)):
            lines.append(f"{owner.__name__}.{name}{signature(member.__func__)}")
        elif inspect.isfunction(member):
            waits = "async " if inspect.iscoroutinefunction(member) else ""
            lines.append(f"{waits}{owner.__name__}.{name}{signature(member)}")
    return lines


def surface() -> str:
    """Write the public face as text, one line for each thing that a caller may use."""
    lines = []
    for each in hiermem.published.__all__:
        function = getattr(hiermem.published, each)
        call = signature(function) if inspect.isfunction(function) else ""
        lines.append(f"published.{each}{call}")
    for name, thing in (PUBLIC | RESULTS).items():
        if not inspect.isclass(thing):
            lines.append(f"{name}{signature(thing) if inspect.isfunction(thing) else ''}")
            continue
        lines.append(f"class {name}")
        if is_typeddict(thing):
            lines += [f"{name}.{field}" for field in thing.__annotations__]
        elif issubclass(thing, pydantic.BaseModel):
            lines += [f"{name}.{field}" for field in thing.model_fields]
            own = set(dir(thing)) - set(dir(pydantic.BaseModel))
            lines += [line for line in members(thing) if re.split(r"[.(]", line)[1] in own]
        elif issubclass(thing, Exception):
            lines.append(f"{name}({', '.join(base.__name__ for base in thing.__mro__[1:-2])})")
        else:
            if is_dataclass(thing):
                lines += [f"{name}.{field.name}" for field in fields(thing)]
            elif inspect.isfunction(thing.__init__) and not getattr(thing, "_is_protocol", False):
                lines.append(f"{name}.__init__{signature(thing.__init__)}")
            lines += members(thing)
    return "\n".join(dict.fromkeys(lines)) + "\n"


def test_the_public_face_is_what_was_agreed():
    now = surface()
    if os.environ.get("HIERMEM_WRITE_SURFACE"):
        KEPT.write_text(now, encoding="utf-8")
    kept = KEPT.read_text(encoding="utf-8").splitlines()
    gone = [line for line in kept if line not in now.splitlines()]
    new = [line for line in now.splitlines() if line not in kept]
    assert (gone, new) == ([], []), "the public face changed; see the docstring of this file"


def test_an_unknown_name_is_an_error_of_the_module_that_lacks_it():
    """Broken, a misspelt import ends in an error about a module that the reader never named."""
    for module in (hiermem, hiermem.types):
        with pytest.raises(AttributeError, match=rf"module '{module.__name__}' has no .* 'Memry'"):
            module.Memry  # noqa: B018
        assert not hasattr(module, "memry")
    assert {*hiermem.__all__} <= {*dir(hiermem)}


def test_what_is_returned_is_no_name_at_the_top():
    """Broken, the sixty names that one begins with are lost among all others."""
    assert len(PUBLIC) < 80
    assert not [name for name in RESULTS if hasattr(hiermem, name)]


PAIRS = [
    (Memory, AsyncMemory), (Session, AsyncSession), (Worker, AsyncWorker), (Space, AsyncSpace),
    (Graph, AsyncGraph), (Manager, ContextWindowManager),
]  # fmt: skip
NAMES = [sync.__name__ for sync, _ in PAIRS]
OWNERS = [owner for pair in PAIRS for owner in pair]


def calls(owner) -> list[str]:
    return [
        name for name in dir(owner) if not name.startswith("_") and callable(getattr(owner, name))
    ]


@pytest.mark.parametrize(("sync", "waiting"), PAIRS, ids=NAMES)
def test_both_faces_have_the_same_names(sync, waiting):
    assert {name for name in dir(sync) if not name.startswith("_")} == {
        name for name in dir(waiting) if not name.startswith("_")
    }


@pytest.mark.parametrize(("sync", "waiting"), PAIRS, ids=NAMES)
def test_both_faces_take_the_same_parameters(sync, waiting):
    """The lines agreed on are compared: a derived method's signature is the other's in any case."""
    agreed = [line.removeprefix("async ") for line in KEPT.read_text("utf-8").splitlines()]
    for name in calls(sync):
        (here,) = [line for line in agreed if line.startswith(f"{sync.__name__}.{name}(")]
        (there,) = [line for line in agreed if line.startswith(f"{waiting.__name__}.{name}(")]
        assert here.partition("(")[2] == there.partition("(")[2], name
        assert "*args" not in here, name
        assert here in members(sync), "help() shows another signature than was agreed on"


@pytest.mark.parametrize("sync", [sync for sync, _ in PAIRS], ids=NAMES)
def test_a_blocking_call_is_named_and_documented_as_itself(sync):
    """Derived under a wrong name, ``flush`` could close the session: both take nothing."""
    shown = pydoc.plain(pydoc.render_doc(sync))
    for name in calls(sync):
        method = getattr(sync, name)
        assert (method.__name__, method.__qualname__) == (name, f"{sync.__name__}.{name}")
        assert method.__module__ == "hiermem.api.sync"
        assert not inspect.iscoroutinefunction(method), name
        assert "return" in get_type_hints(method), name
        assert re.search(rf"^ \|  {name}\((?!\*args)", shown, re.MULTILINE), name
        assert inspect.getdoc(method).splitlines()[0] in shown, name


@pytest.mark.parametrize("sync", [sync for sync, _ in PAIRS], ids=NAMES)
def test_a_blocking_call_names_what_it_returns(sync):
    """Derived from the asynchronous one, ``fork`` would say that it returns an AsyncSession."""
    for name in calls(sync):
        method = getattr(sync, name)
        said = [inspect.signature(method).return_annotation, get_type_hints(method)["return"]]
        assert "Async" not in str(said), name


def test_both_constructors_take_the_same_settings():
    """The blocking one passes further settings on; what it names itself must be the same."""
    here = inspect.signature(Memory.__init__).parameters
    there = inspect.signature(AsyncMemory.__init__).parameters
    named = [name for name, p in here.items() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    for name in named:
        assert here[name].default == there[name].default
        assert here[name].kind == there[name].kind
    passes_on = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in here.values())
    assert passes_on or set(here) == set(there)


@pytest.mark.parametrize("owner", OWNERS)
def test_every_public_call_is_documented(owner):
    for name in dir(owner):
        if not name.startswith("_"):
            assert inspect.getdoc(getattr(owner, name)), f"{owner.__name__}.{name}"


@pytest.mark.parametrize("name", sorted(PUBLIC | RESULTS))
def test_every_public_thing_is_documented(name):
    assert inspect.getdoc((PUBLIC | RESULTS)[name]), name


def test_every_error_is_of_one_family():
    errors = [
        getattr(hiermem, name)
        for name in hiermem.__all__
        if inspect.isclass(getattr(hiermem, name)) and issubclass(getattr(hiermem, name), Exception)
    ]
    assert len(errors) > 10
    assert all(issubclass(error, hiermem.HiermemError) for error in errors)


def test_the_names_of_the_contract_are_where_it_has_them():
    """Broken if a name moves with its room: an application imports it by this path."""
    import hiermem.fleet
    import hiermem.importers

    assert callable(hiermem.fleet.update_one)
    assert callable(hiermem.importers.read_chats)
    assert callable(hiermem.published.settings)


def test_every_error_is_imported_from_the_package():
    """Broken, an application cannot catch the newest error by the name that it is shown."""
    kinds = {name for name, each in vars(errors).items() if isinstance(each, type)}
    assert kinds - {"Any"} == {name for name in PUBLIC if name.endswith("Error")}
