"""The defaults of a memory: the store at a place, the offline model and the shipped prompts.

This is the only module outside the adapters that imports an adapter, and it does so on first use.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from os import PathLike
from typing import Any

from hiermem import arguments
from hiermem.calls.limits import Prices
from hiermem.calls.retry import shielded
from hiermem.config import HierarchyConfig
from hiermem.errors import ConfigError, UsageError
from hiermem.handle import Handle
from hiermem.prompts import load
from hiermem.prompts.template import PromptTemplate
from hiermem.protocols import LLM, LLMRequest, Store, offers, refused
from hiermem.records.run import records_of
from hiermem.records.store import StoreLike
from hiermem.text import policy
from hiermem.tokens import as_counter

#: How the URL of a database in PostgreSQL begins.
_POSTGRES = ("postgresql://", "postgres://")
#: A user and a password before a host, as in a URL whose scheme was forgotten.
_CREDENTIALS = re.compile(r"[^/\\@]+:[^/\\@]*@")
#: How a URL begins, and how a connection string of libpq does that is none.
_SCHEME = re.compile(r"\s*([A-Za-z][A-Za-z0-9+.-]*)://")
_KEYWORD = re.compile(r"\s*(?:host|hostaddr|port|dbname|user|password|service)\s*=")
#: The prompts of this level serve every level above it too.
_LEVELS = 3
#: The allowed names of prompts.
_NAME = re.compile(r"summarise\.l[1-3]\.[^.\s]+|extract\.(?:map|reduce)|consolidate")


def as_llm(given: Any) -> LLM:
    """Return the model: the offline one for None, a named one, a wrapped function, or the given.

    Raises UsageError for anything else, and ConfigError as the adapters do.
    """
    if given is None:
        from hiermem.models.offline.model import ExtractiveLLM

        return ExtractiveLLM()
    if isinstance(given, str):
        from hiermem.models import model_by_name

        return model_by_name(given)
    is_class = isinstance(given, type)
    if offers(given, LLM) and not is_class:
        _check_model(given)
        return given
    if callable(given) and not is_class and not hasattr(given, "complete"):
        from hiermem.models.function import FunctionLLM

        function: Callable[[LLMRequest], Any] = given
        return FunctionLLM(function)
    right = 'be a model with complete(), a function, a name such as "openai:gpt-5-mini", or None'
    raise refused(given, LLM, "llm", right)


def _check_model(llm: LLM) -> None:
    """Raise UsageError where a model says of itself what no run could calculate with or store."""
    name = policy.check_name(llm.name, what="the name of the model")
    prices = getattr(llm, "prices", None)
    if prices is not None and not isinstance(prices, Prices):
        raise UsageError(
            f"the prices of model {name!r} are {type(prices).__name__}; they must be a "
            "hiermem.Prices or None"
        )
    for member, least in (("context_window", 1), ("overhead_tokens", 0)):
        number = getattr(llm, member, None)
        if number is not None:
            arguments.whole(number, f"{member} of model {name!r}", least=least)


def as_prompts(given: Any, config: HierarchyConfig) -> dict[str, PromptTemplate | str]:
    """Return the caller's prompts by name; every level of ``config`` must have a prompt.

    Raises ConfigError as ``named_prompts`` does, and for a style without a prompt: found by an
    update, that would be an error after hours.
    """
    prompts = named_prompts(given)
    for number in range(1, max(_LEVELS, len(config.levels)) + 1):
        style = config.level(number).style
        try:
            load(number, style, prompts)
        except ConfigError as error:
            raise ConfigError(f"level {number} has the style {style!r}, but {error}") from None
    return prompts


def named_prompts(given: Any) -> dict[str, PromptTemplate | str]:
    """Return the caller's prompts by name.

    Raises ConfigError for a name that no call uses, and for a text that is not a template.
    """
    if given is not None and not hasattr(given, "items"):
        raise ConfigError(f"prompts is {type(given).__name__}; it must be a mapping by name")
    found: dict[str, PromptTemplate | str] = {}
    for name, prompt in dict(given or {}).items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ConfigError(
                f"prompt {name!r} does not exist; use summarise.l1.STYLE, summarise.l2.STYLE, "
                "summarise.l3.STYLE, extract.map, extract.reduce, consolidate"
            )
        if not isinstance(prompt, (str, PromptTemplate)):
            raise ConfigError(
                f"prompt {name!r} is {type(prompt).__name__}; it must be a PromptTemplate or text"
            )
        found[name] = prompt if isinstance(prompt, PromptTemplate) else PromptTemplate.parse(prompt)
    return found


def handle_over(
    store: Any, tenant: Any, *, token_counter: Any, config: Any = None, **more: Any
) -> Handle:
    """Return the handle of a tenant of a store. Raises UsageError for arguments of a wrong kind."""
    return Handle(
        store=records_of(store).tenant(policy.check_name(tenant, what="tenant")),
        counter=as_counter(token_counter),
        config=arguments.optional(config, "config", HierarchyConfig, HierarchyConfig.by_tokens),
        configured=config is not None,
        **more,
    )


async def store_at(
    path: str | PathLike[str], *, create: bool, read_only: bool, clock: Callable[[], datetime]
) -> Store:
    """Open the SQLite store at ``path``, or the store in PostgreSQL that it names as a URL.

    Raises UsageError for what is neither.
    """
    arguments.switch(create, "create")
    arguments.switch(read_only, "read_only")
    if not isinstance(path, (str, PathLike)):
        raise UsageError(f"path is {type(path).__name__}; it must be a text or a path")
    place = os.fspath(path)
    if not isinstance(place, str) or not place or "\0" in place:
        raise UsageError('invalid path; pass a file, ":memory:" or a postgresql:// URL')
    # It may be meant for a database, and hold a password; so it is not repeated.
    scheme = _SCHEME.match(place)
    if scheme is not None and not place.startswith(_POSTGRES):
        raise UsageError(
            f'path is a {scheme[1]} URL; pass a file, ":memory:" or a postgresql:// URL'
        )
    if _KEYWORD.match(place):
        raise UsageError(
            "path is a keyword connection string; pass postgresql://user@host/database"
        )
    if scheme is None and _CREDENTIALS.match(place):
        raise UsageError(
            "path looks like credentials and a host; pass postgresql://user@host/database"
        )
    if place.startswith(_POSTGRES):
        from hiermem.remote.object_storage import require

        require("psycopg", extra="postgres", what="a store in PostgreSQL")
        from hiermem.stores.postgres import PostgresStore

        return records_of(await PostgresStore.open(place, create=create, read_only=read_only))
    from hiermem.stores.sqlite import SQLiteStore

    return records_of(await SQLiteStore.open(path, create=create, read_only=read_only, clock=clock))


@asynccontextmanager
async def opened_store(
    target: str | PathLike[str] | StoreLike, *, clock: Callable[[], datetime]
) -> AsyncGenerator[Store]:
    """Lend the store at a place, closed at the end; or a store that is open already.

    Raises UsageError for what is neither.
    """
    if not isinstance(target, (str, PathLike)):
        yield records_of(target)
        return
    if os.fspath(target) == ":memory:":
        raise UsageError('":memory:" would vanish after this call; pass a MemoryStore')
    store = await store_at(target, create=True, read_only=False, clock=clock)
    try:
        yield store
    finally:
        await shielded(store.close())
