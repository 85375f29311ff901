"""The options that commands share, in groups, and what they open: a memory, a session, a model.

A command takes a group as one argument; ``declared`` puts the group's options in its place. Only
commands that create a memory accept a file that does not exist. Keys of models are read from the
environment, never from the command line, where every process of the machine could read them.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from difflib import get_close_matches
from functools import wraps
from inspect import Parameter, getdoc, signature
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints
from unicodedata import normalize

import typer
from pydantic import BaseModel
from typer import Argument, Option

import hiermem
from hiermem import types
from hiermem.cli.output import choose, clean, named, one_line

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
#: A number of tokens, and its unit.
_TOKENS = re.compile(r"(\d+(?:[,_]\d{3})*|\d+(?:\.\d+)?(?=[kKmM]))([kKmM]?)")
#: A parameter in the part "Args" of a docstring.
_ARGUMENT = re.compile(r"^    (\w+): (.+(?:\n {8}.+)*)", re.MULTILINE)
#: The most files of a folder that are looked at.
_LOOKED = 1_000
#: The name of the session with the newest message.
LAST = "@last"
#: How many names an error has.
NAMED = 3
#: The most characters that are shown of a title.
_TITLE = 40
#: The number of sessions, and of messages, that are read at once.
_SESSIONS, _MESSAGES = 500, 1_000


def tokens(least: int) -> Callable[[str | int], int]:
    """Return what reads a number of tokens, ``least`` or more: 4000, 4,000, 4_000 or 4k."""

    def read(given: str | int) -> int:
        found = _TOKENS.fullmatch(str(given))
        if found is None:
            raise typer.BadParameter(f"{given!r} is no number of tokens; write 8000, 8,000 or 8k")
        unit = {"": 1, "k": 1_000, "m": 1_000_000}[found[2].lower()]
        count = int(float(found[1]) * unit) if unit > 1 else int(re.sub("[,_]", "", found[1]))
        if count < least:
            raise typer.BadParameter(f"{given!r}; it must be at least {least:,} tokens")
        return count

    return read


def counted(least: int, **more: Any) -> Any:
    """Return the option of a number of tokens."""
    return Option(parser=tokens(least), metavar="TOKENS", **more)


def named_values(given: Iterable[str] | None, form: str) -> dict[str, str]:
    """Return the values by name of what is written as NAME=VALUE; an error repeats no value."""
    pairs = [each.partition("=") for each in given or ()]
    if not all(name.strip() and mark for name, mark, _ in pairs):
        raise typer.BadParameter(f"write it as {form}")
    return {name.strip(): value.strip() for name, _, value in pairs}


def beside(path: Path) -> str:
    """Name the files of a folder that may be meant by one that is not there."""
    with suppress(OSError):
        there = sorted(each.name for each in islice(path.parent.iterdir(), _LOOKED))
        near = [name for name in there if Path(name).stem == path.name]
        near += get_close_matches(path.name, there, NAMED)
        near += [name for name in there if path.suffix and name.endswith(path.suffix)]
        if near:
            return f"; there is {', '.join(map(clean, list(dict.fromkeys(near))[:NAMED]))}"
    return ""


def declared(command: Callable[..., None], *, as_json: bool = True) -> Callable[..., None]:
    """Return a command whose parameters, and those of its groups, are options and arguments.

    What stands before ``*`` is an argument. The part "Args" of a docstring has the help. With
    ``as_json`` it has the option ``--json``, too, which ``output`` obeys.
    """
    groups: dict[str, type[Any]] = {}
    options: list[Parameter] = []
    hints: dict[str, Any] = get_type_hints(command, include_extras=True)
    about, words = _described(command)
    for one in signature(command).parameters.values():
        kind = hints[one.name]
        if not (isinstance(kind, type) and is_dataclass(kind)):
            kind = _shaped(one.name, kind, words, argument=one.kind is not Parameter.KEYWORD_ONLY)
            options.append(one.replace(annotation=kind, kind=Parameter.KEYWORD_ONLY))
            continue
        groups[one.name] = kind
        kinds, more = get_type_hints(kind, include_extras=True), _described(kind)[1]
        options += [
            Parameter(
                each.name,
                Parameter.KEYWORD_ONLY,
                default=Parameter.empty if each.default is MISSING else each.default,
                annotation=_shaped(each.name, kinds[each.name], more, argument=False),
            )
            for each in fields(kind)
        ]
    if as_json:
        options.append(Parameter("as_json", Parameter.KEYWORD_ONLY, default=False, annotation=Json))

    @wraps(command)
    def run(**given: Any) -> None:
        choose(as_json=given.pop("as_json", False))
        for name, kind in groups.items():
            given[name] = kind(**{each.name: given.pop(each.name) for each in fields(kind)})
        command(**given)

    run.__doc__ = about
    run.__annotations__ = {one.name: one.annotation for one in options}
    run.__dict__["__signature__"] = signature(command).replace(parameters=options)
    return run


def _described(documented: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Return what a command does, and the help of its parameters."""
    classes = [each for each in getattr(documented, "__mro__", [documented])[::-1] if each.__doc__]
    texts = [(getdoc(each) or "").partition("\n\nArgs:\n") for each in classes]
    found = [pair for _, _, listed in texts for pair in _ARGUMENT.findall(listed)]
    return texts[-1][0], {name: " ".join(said.split()) for name, said in found}


def _shaped(name: str, kind: Any, words: Mapping[str, str], *, argument: bool) -> Any:
    """Return a parameter's type with its look on the command line, and with its help."""
    info: Any = get_args(kind)[-1] if get_origin(kind) is Annotated else None
    if info is None:
        info = Argument() if argument else Option(f"--{name.replace('_', '-')}")
        kind = Annotated[kind, info]
    info.help = words.get(name, info.help)
    return kind


def shown_db(db: str) -> str:
    """Return how the place of a memory is printed: a URL may hold a password."""
    return "DSN" if "://" in db or "@" in db else db


def db_option(db: str) -> str:
    """Return the option that names a memory; nothing for the one that is meant without it."""
    return "" if db == os.environ.get("HIERMEM_DB", DB) else f" --db {shown_db(db)}"


def open_existing(db: str, llm: hiermem.LLM | None = None, **settings: Any) -> hiermem.Memory:
    """Open an existing memory; ``settings`` are further arguments of ``Memory.open``."""
    file = Path(db)
    missing = not file.exists() or (file.is_file() and not file.stat().st_size)
    is_url = any(mark in db for mark in ("://", "=", "@"))  # it may hold a password
    if missing and not is_url:
        raise hiermem.NotFoundError(
            f"there is no memory at {db}{beside(file)}; "
            f"'hiermem import FILE{db_option(db)}' makes one"
        )
    return hiermem.Memory.open(db, llm=llm, create=False, **settings)


@dataclass(frozen=True, kw_only=True)
class Place:
    """A memory: its place and its tenant.

    Args:
        tenant: The tenant whose memory is opened.
    """

    db: Db = DB
    tenant: str = "default"

    def open(self, llm: hiermem.LLM | None = None, **settings: Any) -> hiermem.Memory:
        """Open the memory, which must exist."""
        return open_existing(self.db, llm, tenant=self.tenant, **settings)

    def made(self, *, create: bool = True) -> hiermem.Memory:
        """Open the memory, which is made if there is none."""
        return hiermem.Memory.open(self.db, tenant=self.tenant, create=create)


#: The space of a command line that names none, and the person of one that an import makes.
ME: Final = "me"
_PERSON: Final = "the user"


@dataclass(frozen=True, kw_only=True)
class InSpace(Place):
    """A memory, and the space whose conversations a command is about.

    Args:
        no_space: The conversations that are in no space.
    """

    space: Annotated[
        str | None, Option("--space", metavar="NAME", help=f"The space; {ME} by default.")
    ] = None
    no_space: bool = False

    def __post_init__(self) -> None:
        if self.no_space and self.space is not None:
            raise typer.BadParameter("--space and --no-space exclude each other; pass one")

    @property
    def is_named(self) -> bool:
        """Return whether the command line says which conversations it is about."""
        return self.no_space or self.space is not None

    def chosen(self, memory: hiermem.Memory) -> str | None:
        """Return the name of the space; None for the conversations in no space.

        Raises NotFoundError for a space that does not exist, UsageError where one must be named.
        """
        known = memory.spaces()
        name = spelled(self.space or ME, known)
        if self.no_space or (self.space is None and name not in known):
            inside = memory.count_sessions() - memory.count_sessions(space=None)
            if inside and not self.no_space:
                raise hiermem.UsageError(
                    "conversations are in spaces; pass --space or --no-space; there is "
                    f"{named(known, NAMED)}"
                )
            return None
        if name not in known:
            raise hiermem.NotFoundError(f"space {name!r} does not exist; 'hiermem import' makes it")
        return name

    def space_of(self, memory: hiermem.Memory) -> hiermem.Space:
        """Return the space, which must exist."""
        name = self.chosen(memory)
        if name is None:
            raise hiermem.NotFoundError("this memory has no such space; 'hiermem import' makes it")
        return memory.space(name)


@dataclass(frozen=True, kw_only=True)
class MadeSpace(InSpace):
    """A memory, and a space that is made if it does not exist.

    Args:
        person: The name under which the person of a new space speaks.
    """

    person: Annotated[str | None, Option(metavar="NAME")] = None

    def made_space(self, memory: hiermem.Memory) -> str | None:
        """Return the name of the space, and make it if it does not exist; None with --no-space."""
        if self.no_space:
            return None
        known = memory.spaces()
        name = spelled(self.space or ME, known)
        if name not in known or self.person is not None:
            try:
                memory.space(name, person=self.person or _PERSON).files()
            except hiermem.ConflictError as error:
                raise hiermem.ConflictError(f"{error} (--space NAME)", kind="rules") from None
        return name

    def check_person(self) -> None:
        """Raise ConflictError where the space is there and has another person."""
        with suppress(hiermem.NotFoundError), self.open() as memory:
            if self.person and spelled(self.space or ME, known := memory.spaces()) in known:
                self.made_space(memory)


#: The session of a command that takes other words first.
Session = Annotated[
    str | None, Option("--session", "-s", help="The session: its title, its id, or @last.")
]


@dataclass(frozen=True, kw_only=True)
class OneSession(Place):
    """A session of a memory, named as the first word or with ``--session``.

    Args:
        name: The session: its title, its id, the beginning of one, or @last for the one with the
            newest message. It may be left out if there is only one.
        session: The same as SESSION.
    """

    name: Annotated[str | None, Argument(metavar="SESSION", show_default=False)] = None
    session: Annotated[str | None, Option("--session", "-s")] = None

    def chosen(self) -> str | None:
        """Return the session's name, which is given once."""
        if self.name is not None and self.session is not None:
            raise hiermem.UsageError(
                f"the session is named twice: {self.name!r} and --session {self.session!r}"
            )
        return self.session if self.name is None else self.name

    def parted(self, words: Sequence[str]) -> tuple[OneSession, list[str]]:
        """Return the session, and the words after it; with --session, they begin with the first."""
        if self.session is None or self.name is None:
            return self, list(words)
        return replace(self, name=None), [self.name, *words]

    @contextmanager
    def opened(self, llm: hiermem.LLM | None = None, **settings: Any) -> Iterator[hiermem.Session]:
        """Open the memory and choose the session."""
        name = self.chosen()
        with self.open(llm, **settings) as memory:
            yield session_of(memory, name)


def sessions_of(memory: hiermem.Memory, **which: Any) -> Iterator[types.SessionRecord]:
    """Yield the memory's sessions, oldest first by default, read page by page.

    ``which`` are further arguments of ``memory.sessions``.
    """
    last: str | None = None
    while page := memory.sessions(after=last, limit=_SESSIONS, **which):
        yield from page
        last = page[-1].id


def messages_of(session: hiermem.Session) -> Iterator[types.StoredMessage]:
    """Yield the messages that the session has now, read page by page."""
    stop = session.count()
    for start in range(0, stop, _MESSAGES):
        yield from session.messages(start, min(stop, start + _MESSAGES))


def session_of(memory: hiermem.Memory, name: str | None, *, whole: bool = False) -> hiermem.Session:
    """Return the session that a name means, or the only one if there is no name.

    Raises what ``memory.find`` raises, and UsageError where a name is needed.
    """
    if name is not None:
        return memory.find(clean(name), whole=whole and name != LAST)
    found = memory.sessions(limit=2, order_by="last_activity")
    if len(found) > 1:
        raise hiermem.UsageError(
            f"there are {memory.count_sessions():,} sessions; name one, such as "
            f"{title_of(found[0])!r}, or {LAST}; 'hiermem sessions' lists them"
        )
    if not found:
        raise hiermem.NotFoundError("this memory holds no session yet; import a conversation first")
    return memory.session(found[0].id)


def title_of(session: types.SessionRecord | types.SessionStatus) -> str:
    """Return the beginning of a session's title on one line, or its id if it has none."""
    return one_line(session.title, _TITLE) if session.title else clean(session.id)


def labelled(session: types.SessionRecord | types.SessionStatus) -> str:
    """Return a session's title and its id: ``Plans (9a2ef80f-58ee)``."""
    name = clean(session.id)
    return f"{title_of(session)} ({name})" if session.title else name


def names_of(memory: hiermem.Memory) -> dict[str, str]:
    """Return for each session's id its title, with the id where others are shown alike."""
    plain = [(each, title_of(each).casefold()) for each in sessions_of(memory)]
    alike = Counter(title for _, title in plain)
    return {one.id: (labelled if alike[title] > 1 else title_of)(one) for one, title in plain}


def spelled(name: str, known: Sequence[str]) -> str:
    """Return the one of the ``known`` names that is this name in another normal form, or the name.

    A keyboard and a file system write an accented letter differently.
    """
    like = [each for each in known if normalize("NFC", each) == normalize("NFC", name)]
    return name if name in like or not like else like[0]


@dataclass(frozen=True, kw_only=True)
class Caps:
    """The most calls and tokens of one command.

    Args:
        max_calls: Stop before more calls.
        max_tokens: Stop before more tokens.
    """

    max_calls: Annotated[int | None, Option(min=0)] = None
    max_tokens: Annotated[int | None, counted(0)] = None

    @property
    def limits(self) -> hiermem.Limits:
        """The limits of the command's work."""
        return hiermem.Limits(calls=self.max_calls, tokens=self.max_tokens)


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model, and how it is called.

    Args:
        model: Use openai:, anthropic:, ollama: or litellm:NAME instead of the offline model.
        model_url: The address of its server; HIERMEM_MODEL_KEY in the environment holds the key.
        model_window: Its context window in tokens, if it is not known.
        concurrency: Calls in flight: 3 by default, 1 for a server on this machine.
        timeout: Seconds that one call may take; 600 by default for a server on this machine.
        retries: How often a call that failed for a moment is repeated.
        temperature: The model's temperature for all requests.
    """

    model: Annotated[
        str | None, Option("--model", envvar="HIERMEM_MODEL", metavar="PROVIDER:MODEL")
    ] = None
    model_url: Annotated[str | None, Option(envvar="HIERMEM_MODEL_URL")] = None
    model_window: Annotated[int | None, counted(1, envvar="HIERMEM_MODEL_WINDOW")] = None
    concurrency: Annotated[int | None, Option(min=1, max=256)] = None
    timeout: Annotated[float | None, Option(min=0.1)] = None
    retries: Annotated[int | None, Option(min=0)] = None
    temperature: Annotated[float | None, Option(min=0, max=2)] = None

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
        given = _given(
            base_url=self.model_url or None,
            api_key=os.environ.get(KEY) or None,
            context_window=self.model_window,
            timeout=self.timeout,
            temperature=self.temperature,
        )
        try:
            from hiermem.models import model_by_name

            return model_by_name(self.model, **given)
        except hiermem.ConfigError:
            raise
        except hiermem.UsageError as error:
            raise typer.BadParameter(f"--model: {error}") from None

    def connected(self) -> hiermem.LLM | None:
        """Return the model for a process that goes on, which must not meet a missing key later."""
        llm = self.llm()

        async def connect() -> None:
            for step in ("connect", "disconnect"):
                if (act := getattr(llm, step, None)) is not None:
                    await act()

        asyncio.run(connect())
        return llm

    def policy(self, kind: type[P], **settings: Any) -> P:
        """Return a policy with what the options give of it; all others keep their defaults."""
        calls = _given(
            call_timeout=self.timeout, retries=self.retries, concurrency=self.concurrency
        )
        given = {name: value for name, value in calls.items() if name in kind.model_fields}
        return kind(**given, **settings)


def _given(**settings: Any) -> dict[str, Any]:
    """Return the settings that the command line gives."""
    return {name: value for name, value in settings.items() if value is not None}
