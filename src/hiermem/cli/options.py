"""The options that commands share, in groups, and what they open: a memory, a session, a model.

A command takes a group as one argument; ``declared`` puts the group's options in its place. Only
commands that create a memory accept a file that does not exist. Keys of models are read from the
environment, never from the command line, where every process of the machine could read them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields, is_dataclass
from difflib import get_close_matches
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar, get_type_hints

import typer
from pydantic import BaseModel
from typer import Option

import hiermem
from hiermem.cli import output
from hiermem.cli.screen import clean, one_line

P = TypeVar("P", bound=BaseModel)
Db = Annotated[
    str, Option("--db", envvar="HIERMEM_DB", help="The memory's file, or its postgresql:// URL.")
]
#: The default file of the memory.
DB = "hiermem.db"
Json = Annotated[bool, Option("--json", help="Print one JSON object, for a program.")]
Yes = Annotated[bool, Option("--yes", "-y", help="Do not ask.")]
#: How an erasure treats other sessions that share a message.
Forks = Literal["all", "keep"]
#: The variable with the key for ``--model``; without it, the provider's own variable is used.
KEY: Final = "HIERMEM_MODEL_KEY"
#: The number of sessions, and of messages, that are read at once.
_SESSIONS, _MESSAGES = 500, 1_000
#: How many sessions are listed if one must be chosen, and how many similar ones for an unknown id.
_NAMED, _NEAREST = 8, 3
#: The characters of a title that are shown beside an id.
_TITLE = 40
_LISTED = "'hiermem sessions' lists them"


def declared(command: Callable[..., None], *, as_json: bool = True) -> Callable[..., None]:
    """Return a command whose groups of options are single options, in their places.

    With ``as_json`` it has the option ``--json``, too, which ``output`` obeys.
    """
    groups: dict[str, type[Any]] = {}
    options: list[Parameter] = []
    hints: dict[str, Any] = get_type_hints(command, include_extras=True)
    for one in signature(command).parameters.values():
        kind = hints[one.name]
        if not (isinstance(kind, type) and is_dataclass(kind)):
            options.append(one.replace(annotation=kind, kind=Parameter.KEYWORD_ONLY))
            continue
        groups[one.name] = kind
        kinds = get_type_hints(kind, include_extras=True)
        options += [
            Parameter(
                each.name,
                Parameter.KEYWORD_ONLY,
                default=Parameter.empty if each.default is MISSING else each.default,
                annotation=kinds[each.name],
            )
            for each in fields(kind)
        ]
    if as_json:
        options.append(Parameter("as_json", Parameter.KEYWORD_ONLY, default=False, annotation=Json))

    @wraps(command)
    def run(**given: Any) -> None:
        output.choose(as_json=given.pop("as_json", False))
        for name, kind in groups.items():
            given[name] = kind(**{each.name: given.pop(each.name) for each in fields(kind)})
        command(**given)

    run.__annotations__ = {one.name: one.annotation for one in options}
    run.__dict__["__signature__"] = signature(command).replace(parameters=options)
    return run


# ---------------------------------------------------------------------------------------------
# The memory, and one session of it


def shown(db: str) -> str:
    """Return how the place of a memory is printed: a URL may hold a password."""
    return "DSN" if "://" in db or "@" in db else db


def open_existing(db: str, llm: hiermem.LLM | None = None, **settings: Any) -> hiermem.Memory:
    """Open an existing memory; ``settings`` are further arguments of ``Memory.open``."""
    file = Path(db)
    missing = not file.exists() or (file.is_file() and not file.stat().st_size)
    if missing and not any(
        mark in db for mark in ("://", "=", "@")
    ):  # which may be a database's, with a password
        raise hiermem.NotFoundError(
            f"there is no memory at {db}; 'hiermem import FILE --db {db}' makes one"
        )
    return hiermem.Memory.open(db, llm=llm, create=False, **settings)


@dataclass(frozen=True, kw_only=True)
class Place:
    """A memory: its place and its tenant."""

    db: Db = DB
    tenant: Annotated[str, Option("--tenant", help="The tenant whose memory is opened.")] = (
        "default"
    )

    def open(self, llm: hiermem.LLM | None = None, **settings: Any) -> hiermem.Memory:
        """Open the memory, which must exist."""
        return open_existing(self.db, llm, tenant=self.tenant, **settings)

    def made(self, *, create: bool = True) -> hiermem.Memory:
        """Open the memory, which is made if there is none."""
        return hiermem.Memory.open(self.db, tenant=self.tenant, create=create)


@dataclass(frozen=True, kw_only=True)
class OneSession(Place):
    """A session of a memory."""

    session: Annotated[
        str | None,
        Option("--session", "-s", help="The session; optional if there is only one."),
    ] = None

    @contextmanager
    def opened(self, llm: hiermem.LLM | None = None) -> Iterator[hiermem.Session]:
        """Open the memory and choose the session."""
        with self.open(llm) as memory:
            yield session_of(memory, self.session)


def sessions_of(memory: hiermem.Memory, **which: Any) -> Iterator[hiermem.SessionRecord]:
    """Yield the memory's sessions, oldest first, read page by page.

    ``which`` are further arguments of ``memory.sessions``.
    """
    last: str | None = None
    while page := memory.sessions(after=last, limit=_SESSIONS, **which):
        yield from page
        last = page[-1].id


def messages_of(session: hiermem.Session) -> Iterator[hiermem.StoredMessage]:
    """Yield the messages that the session has now, read page by page."""
    stop = session.count()
    for start in range(0, stop, _MESSAGES):
        yield from session.messages(start, min(stop, start + _MESSAGES))


def session_of(memory: hiermem.Memory, session: str | None) -> hiermem.Session:
    """Return the named session, or the only one if none is named.

    Raises NotFoundError for a name that no session has, and UsageError where a name is needed.
    """
    if session is not None:
        return named_session(memory, session)
    found = memory.sessions(limit=_NAMED + 1)
    if len(found) == 1:
        return memory.session(found[0].id)
    if not found:
        raise hiermem.NotFoundError("this memory holds no session yet; import a conversation first")
    more = f" and more; {_LISTED}" if len(found) > _NAMED else ""
    named = ", ".join(map(_name, found[:_NAMED]))
    raise hiermem.UsageError(
        f"there are {memory.count_sessions():,} sessions; choose one with --session: {named}{more}"
    )


def named_session(memory: hiermem.Memory, name: str) -> hiermem.Session:
    """Return the session of that id. Raises NotFoundError, with the ids and titles most like it."""
    session = memory.session(name)
    if session.count():
        return session
    records = list(sessions_of(memory))
    if any(record.id == name for record in records):
        return session
    like: dict[str, list[str]] = {}
    for record in records:
        for text in (record.id, record.title or record.id):
            like.setdefault(text, []).append(_name(record))
    near = dict.fromkeys(
        named for text in get_close_matches(name, like, _NEAREST, 0.5) for named in like[text]
    )
    there = f"there is {', '.join(list(near)[:_NEAREST])}" if near else _LISTED
    raise hiermem.NotFoundError(f"there is no session {name!r}; {there}")


def _name(record: hiermem.SessionRecord) -> str:
    """Return a session's id, with its title where it has one."""
    return clean(record.id) + (f" ({one_line(record.title, _TITLE)})" if record.title else "")


# ---------------------------------------------------------------------------------------------
# The model, and the caps of its calls


@dataclass(frozen=True, kw_only=True)
class Caps:
    """The most calls and tokens of one command."""

    max_calls: Annotated[int | None, Option(min=0, help="Stop before more calls.")] = None
    max_tokens: Annotated[int | None, Option(min=0, help="Stop before more tokens.")] = None

    def less(self, calls: int, tokens: int) -> Caps:
        """Return what is left of them after so many calls and tokens."""
        return Caps(
            max_calls=None if self.max_calls is None else max(0, self.max_calls - calls),
            max_tokens=None if self.max_tokens is None else max(0, self.max_tokens - tokens),
        )


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model, and how it is called."""

    model: Annotated[
        str | None,
        Option(
            "--model", envvar="HIERMEM_MODEL", metavar="PROVIDER:MODEL",
            help="Use this model (openai:NAME, anthropic:NAME, litellm:NAME), not the offline one.",
        ),
    ] = None  # fmt: skip
    model_url: Annotated[
        str | None,
        Option(
            envvar="HIERMEM_MODEL_URL",
            help="The address of its server; HIERMEM_MODEL_KEY in the environment holds the key.",
        ),
    ] = None
    model_window: Annotated[
        int | None,
        Option(
            envvar="HIERMEM_MODEL_WINDOW", min=1,
            help="Its context window in tokens, if it is not known.",
        ),
    ] = None  # fmt: skip
    concurrency: Annotated[
        int | None,
        Option(
            min=1, max=256, help="Calls in flight: 3 by default, 1 for a server on this machine."
        ),
    ] = None
    timeout: Annotated[
        float | None,
        Option(
            min=0,
            help="Seconds that one call may take; 600 by default for a server on this machine.",
        ),
    ] = None
    retries: Annotated[
        int | None, Option(min=0, help="How often a call that failed for a moment is repeated.")
    ] = None
    temperature: Annotated[
        float | None, Option(min=0, max=2, help="The model's temperature for all requests.")
    ] = None

    def llm(self) -> hiermem.LLM | None:
        """Return the model that the options name; None if they name none.

        Raises BadParameter for an unknown name, and ConfigError as the adapters do.
        """
        if not self.model:
            if self.model_url or self.model_window or self.temperature is not None:
                raise typer.BadParameter(
                    "--model-url, --model-window and --temperature need a --model"
                )
            return None
        settings = {
            "base_url": self.model_url or None,
            "api_key": os.environ.get(KEY) or None,
            "context_window": self.model_window,
            "timeout": self.timeout,
            "temperature": self.temperature,
        }
        given = {name: value for name, value in settings.items() if value is not None}
        try:
            return hiermem.model_by_name(self.model, **given)
        except hiermem.ConfigError:
            raise
        except hiermem.UsageError as error:
            raise typer.BadParameter(f"--model: {error}") from None

    def policy(self, kind: type[P], **settings: Any) -> P:
        """Return a policy with what the options give of it; all others keep their defaults."""
        calls = {
            "call_timeout": self.timeout,
            "retries": self.retries,
            "concurrency": self.concurrency,
        }
        given = {
            name: value
            for name, value in calls.items()
            if value is not None and name in kind.model_fields
        }
        return kind(**given, **settings)
