"""The configuration of sessions and the policies of runs.

A configuration that cannot converge or fit is refused when it is constructed, so other code need
not check it. It is frozen, compares by value and is stored with the session as canonical JSON. A
model is built at its first use, not at import.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import cache
from typing import Any, Final, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from hiermem import published_keys
from hiermem.errors import ConfigError

P = TypeVar("P", bound=BaseModel)
Unit = Literal["tokens", "chars"]

#: The most seconds that a lease may be set to; one that claims to last much longer is ignored.
LONGEST_LEASE = 3600.0
#: What pydantic says of a value, and what this module says.
_WORDS: Final = (
    ("Value error, ", ""),
    ("Input should", "it must"),
    ("Extra inputs are not permitted", "there is no such setting"),
)
#: Seconds in a week.
_WEEK = 604_800.0
#: Inputs of this many tokens or fewer may keep their size; larger inputs must get smaller.
_SMALL_INPUT = 200
#: The settings for a model that is served on this machine, where nothing was set.
_LOCAL_SERVER: Final[Mapping[str, Any]] = {"concurrency": 1, "call_timeout": 600.0}


class _Policy(BaseModel):
    """A frozen set of settings that raises ConfigError where pydantic finds a fault."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    def __init__(self, **settings: Any) -> None:
        try:
            super().__init__(**settings)
        except ValidationError as error:
            what = "; ".join(
                ": ".join(([".".join(map(str, e["loc"]))] if e["loc"] else []) + [e["msg"]])
                for e in error.errors(include_url=False, include_input=False)
            )
            for theirs, ours in _WORDS:
                what = what.replace(theirs, ours)
            raise ConfigError(f"{type(self).__name__}: {what}") from None


def for_model(policy: P, model: object) -> P:
    """Return the settings for ``model``; those that were not set suit a server of this machine.

    Such a server answers one request at a time as a rule, and slowly.
    """
    if not getattr(model, "local_server", False):
        return policy
    names = type(policy).model_fields.keys() - policy.model_fields_set
    update = {name: value for name, value in _LOCAL_SERVER.items() if name in names}
    return policy.model_copy(update=update)


def replaced(policy: P, **settings: Any) -> P:
    """Return the policy with other settings, where they are not None. Raises ConfigError."""
    given = {name: value for name, value in settings.items() if value is not None}
    return type(policy)(**{**policy.model_dump(exclude_unset=True), **given}) if given else policy


class LevelConfig(_Policy):
    """How the summaries of one level are grouped and how long they are.

    A group is sealed when it reaches ``fan_in`` children, ``max_size`` (the sum of the children's
    allotted sizes, in the session's unit) or ``max_messages`` covered messages, and before a child
    joins that would take it over ``max_size * (1 + tolerance)``. Level 1 uses the window rules of
    HierarchyConfig instead. The allotted size of a summary is
    ``min(input, clamp(target_ratio * input, floor, cap))``.
    """

    target_ratio: float = Field(gt=0, lt=1)
    style: str
    fan_in: int = Field(default=5, ge=2)
    max_size: int | None = Field(default=None, ge=1)
    tolerance: float = Field(default=0.0, ge=0, le=1)
    max_messages: int | None = Field(default=None, ge=2)
    floor: int = Field(default=0, ge=0)
    cap: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _check(self) -> LevelConfig:
        if self.cap is not None and self.cap < self.floor:
            raise ValueError(f"cap {self.cap} is below floor {self.floor}")
        return self


class Limits(_Policy):
    """What one call of the library may spend on a model; None is no limit.

    It ends before the call of the model that would exceed ``calls``, ``tokens`` (in and out
    together) or ``deadline``, in seconds from its start. What is not made stays pending.
    """

    model_config = ConfigDict(strict=True)

    calls: int | None = Field(default=None, ge=0)
    tokens: int | None = Field(default=None, ge=0)
    deadline: float | None = Field(default=None, ge=0)

    def after(self, *, calls: int, tokens: int, seconds: float = 0.0) -> Limits:
        """Return what is left when this much is spent."""
        spent = {"calls": calls, "tokens": tokens, "deadline": seconds}
        left = {name: max(0, most - spent[name]) for name, most in self if most is not None}
        return Limits(**left)


#: What an update does: make what is missing or dirty, or re-pack everything.
UpdateStrategy: TypeAlias = Literal["incremental", "full"]


class UpdatePolicy(_Policy):
    """How a model is called, and how updates use it. Not part of a session's structure.

    The settings down to ``down_after`` hold for extractions and consolidations too.
    ``concurrency`` limits the calls in flight, and ``requests_per_minute`` and
    ``tokens_per_minute`` (in and out together) those of a remote model, of everything in one event
    loop that uses one model object. What a minute allows may go at once, and more at that rate; a
    call of more tokens than a minute has counts as those. ``batch_delay`` is the pause in seconds
    after every ``concurrency`` calls of a run to a remote model. An error that may pass is met by
    at most ``retries`` more tries, with growing pauses. After ``down_after`` failed calls in a row
    (None: never) the model is down: runs end, and it is not called for 15 seconds; that doubles
    each time it still fails, up to ten minutes. A run's claim ends ``lease`` seconds after its last
    sign of life. Values are not converted.

    After ``max_attempts`` failed calls for one text, two at least, an extract stands in for it,
    and the model is asked again at growing distances, four times at most.
    ``session_calls``, ``session_tokens``, ``tenant_calls`` and ``tenant_tokens`` cap the journalled
    totals of one session, or of the tenant. With ``follow_strategy``, summaries made with another
    model, prompt or ratio are made again. With ``regenerate_on_edit``, updates make the summaries
    over edited messages again; without, their texts serve, marked as dirty.
    """

    model_config = ConfigDict(strict=True)

    concurrency: int = Field(default=3, ge=1, le=256)
    batch_delay: float = Field(default=1.5, ge=0)
    retries: int = Field(default=4, ge=0)
    lease: float = Field(default=60.0, gt=0, le=LONGEST_LEASE)
    requests_per_minute: int | None = Field(default=None, ge=1)
    tokens_per_minute: int | None = Field(default=None, ge=1)
    down_after: int | None = Field(default=8, ge=1)
    max_attempts: int = Field(default=2, ge=1)
    call_timeout: float = Field(default=120.0, gt=0)
    drain: float = Field(default=30.0, ge=0)
    session_calls: int | None = Field(default=None, ge=0)
    session_tokens: int | None = Field(default=None, ge=0)
    tenant_calls: int | None = Field(default=None, ge=0)
    tenant_tokens: int | None = Field(default=None, ge=0)
    follow_strategy: bool = False
    regenerate_on_edit: bool = False


class ExtractionOptions(_Policy):
    """How a session is extracted.

    ``safe_processing_tokens`` is the limit of one request, with prompt, record and answer; None
    means 0.75 of the model's stated window, or no limit if it states none. ``output_tokens`` is
    reserved for the answer to one chunk; None means 4,096 for a remote model, 16,384 for a local
    one, and never more than a quarter of its window. ``summary_tokens`` is the length of the
    session's summary. ``call_timeout`` is in seconds.
    """

    safe_processing_tokens: int | None = Field(default=None, ge=1, strict=True)
    output_tokens: int | None = Field(default=None, ge=256, le=200_000)
    summary_tokens: int = Field(default=600, ge=50, le=20_000)
    on_chunk_failure: Literal["abort", "partial"] = "abort"
    oversized: Literal["fail", "slice"] = "fail"
    temperature: float = Field(default=0.0, ge=0, le=2)
    call_timeout: float = Field(default=300.0, gt=0)


class BankPolicy(_Policy):
    """How the notes of a space are consolidated.

    One run takes the oldest ``max_notes`` notes, in requests of at most ``safe_processing_tokens``
    each, with prompt and answer; None means 0.75 of the model's stated window, or no limit if it
    states none. ``output_tokens`` is reserved for an answer; None means 8,192 for a remote model,
    16,384 for a local one, and never more than a quarter of its window; a file that is longer has
    more. ``call_timeout`` is in seconds. Consumed notes are kept for ``retention``; None
    means for ever. In a space that learns, a file has at most ``file_tokens``, and all files
    together have ``page_tokens``; what is older moves to past.md and is shortened there.
    """

    model_config = ConfigDict(strict=True)

    max_notes: int = Field(default=500, ge=1, le=10_000)
    safe_processing_tokens: int | None = Field(default=None, ge=1)
    output_tokens: int | None = Field(default=None, ge=256, le=200_000)
    call_timeout: float = Field(default=600.0, gt=0)
    temperature: float = Field(default=0.0, ge=0, le=2)
    retention: timedelta | None = Field(default=None, ge=timedelta(0))
    file_tokens: int = Field(default=600, ge=64, le=100_000)
    page_tokens: int = Field(default=1_500, ge=64, le=1_000_000)


#: Recall's share of ``_SMALL`` tokens and less, as a multiple of its share from ``_LARGE`` up.
_SMALL, _LARGE = 2_000, 8_000
_SMALL_TIMES, _SMALL_MOST = 1.5, 0.6


class ContextPolicy(_Policy):
    """The shares of a context's budget.

    - ``turns``: so many of the last turns stand verbatim where they take at most a third of the
      budget, else the newest one.
    - ``recall``: the share of the whole budget for what answers a query, from 8,000 tokens up. It
      rises in a straight line to one and a half times that, 0.6 at most, at 2,000 and below.
    - ``pins``: the share of the whole budget for pinned messages that do not stand verbatim, 250
      tokens at least; with 0, none are shown.
    - ``images``: the most images that a context holds. The newest stand, older ones by name, as
      ``[image: …]`` with their reference.
    - ``space``: the share of the whole budget for what a member's context begins with, 300 tokens
      at least from 2,000 on, none below 1,000; with 0, nothing is shown of the space. While all of
      the conversation stands verbatim beside it, it may have .45, up to 2,000 tokens.
    """

    turns: int = Field(default=2, ge=1, le=100)
    recall: float = Field(default=0.40, ge=0, lt=1)
    pins: float = Field(default=0.10, ge=0, le=0.5)
    images: int = Field(default=20, ge=0)
    space: float = Field(default=0.15, ge=0, le=0.5)

    def recall_share(self, budget: int) -> float:
        """Return the share of a budget of so many tokens that is kept for what answers."""
        small = max(self.recall, min(_SMALL_TIMES * self.recall, _SMALL_MOST))
        place = min(max((budget - _SMALL) / (_LARGE - _SMALL), 0.0), 1.0)
        return small + place * (self.recall - small)


class SearchPolicy(_Policy):
    """How sessions are searched, and how vectors are made where there is an embedder.

    ``candidates`` is the least number of items of each level that a search considers: messages, L1,
    L2, ...; the last number applies to the levels above. ``cache_bytes`` bounds the indexes kept in
    memory. With ``embed_summaries``, summaries get vectors, level 1 first; with ``embed_messages``,
    messages get them after that. ``embed_batch`` texts go into one request.
    ``requests_per_minute`` and ``tokens_per_minute`` apply to everything that uses one embedder
    object.
    """

    candidates: tuple[int, ...] = Field(default=(10, 5, 3, 1), min_length=1)
    cache_bytes: int = Field(default=268_435_456, ge=0)
    embed_summaries: bool = True
    embed_messages: bool = True
    embed_batch: int = Field(default=64, ge=1, le=10_000)
    requests_per_minute: int | None = Field(default=None, ge=1)
    tokens_per_minute: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _check(self) -> SearchPolicy:
        if any(count < 0 for count in self.candidates):
            raise ValueError("candidates holds a number below 0")
        return self

    def of_level(self, level: int) -> int:
        """Return the number of candidates of ``level``."""
        return self.candidates[min(level, len(self.candidates) - 1)]


@cache
def _token_levels() -> tuple[LevelConfig, ...]:
    return (
        LevelConfig(target_ratio=0.50, style="detailed"),
        LevelConfig(
            target_ratio=0.30, style="thematic", fan_in=5, max_size=4000, tolerance=0.25,
            max_messages=100,
        ),
        LevelConfig(
            target_ratio=0.20, style="executive", fan_in=3, max_size=6000, tolerance=0.25,
            max_messages=500, floor=200, cap=400,
        ),
        # From here on a node is somewhat longer than a node of level 3: as it covers more and more,
        # a shorter one would say nothing that any other node of its level does not say.
        LevelConfig(
            target_ratio=0.42, style="executive", fan_in=3, max_size=6000, tolerance=0.25,
            max_messages=2500, floor=200, cap=500,
        ),
    )  # fmt: skip


@cache
def _char_levels() -> tuple[LevelConfig, ...]:
    return (
        LevelConfig(target_ratio=0.10, style="detailed"),
        LevelConfig(
            target_ratio=0.10, style="thematic", fan_in=40, max_size=10_000, tolerance=0.2
        ),
        LevelConfig(
            target_ratio=0.10, style="executive", fan_in=40, max_size=10_000, tolerance=0.2,
            floor=200, cap=1200,
        ),
    )  # fmt: skip


class HierarchyConfig(_Policy):
    """Everything that decides the shape of a session's tree. Use the two presets.

    Sizes are in ``unit``. ``levels[0]`` is level 1; the last entry applies to every level above it,
    with ``max_messages`` growing fivefold per level. Inputs of ``verbatim_tokens`` tokens or fewer
    become the summary word for word, without a model call; at most 200, because larger inputs must
    get smaller from level to level. Of a tool's result, a summary is made from at most
    ``tool_result_tokens``, as an excerpt, and sealing weighs no more; None takes all of it.
    """

    unit: Unit = "tokens"
    target: int = Field(default=2000, ge=1)
    tolerance: float = Field(default=0.20, ge=0, lt=1)
    max_messages: int | None = Field(default=10, ge=1)
    max_age: timedelta | None = timedelta(hours=1)
    flush_after: timedelta | None = None
    min_flush: int = Field(default=0, ge=0)
    overlap: int = Field(default=0, ge=0, le=400)
    boundary: Literal["turn", "message"] = "turn"
    seal_policy: Literal["hybrid", "size", "time"] = "hybrid"
    hard_limit: int = Field(default=0, ge=0, description="0 means 1.5 times the target")
    levels: tuple[LevelConfig, ...] = Field(default_factory=_token_levels, min_length=1)
    verbatim_tokens: int = Field(default=200, ge=1)
    tool_result_tokens: int | None = Field(default=400, ge=20)
    ratio_only: bool = False
    temperature: float = Field(default=0.3, ge=0, le=2)
    enabled: bool = True

    @model_validator(mode="before")
    @classmethod
    def _aliases(cls, data: Any) -> Any:
        if isinstance(data, dict):
            for name in ("max_age", "flush_after"):
                value = data.get(name)
                # A bare number of seconds over a week was probably meant as milliseconds.
                if isinstance(value, (int, float)) and value > _WEEK:
                    raise ValueError(
                        f"{name} is {value:,} seconds, more than a week; are milliseconds meant? "
                        f"Say which by timedelta(milliseconds={value}) or "
                        f"timedelta(seconds={value})"
                    )
            if data.get("seal_policy") == "chars":
                data = {**data, "seal_policy": "size"}
        return data

    @model_validator(mode="after")
    def _check(self) -> HierarchyConfig:
        if not self.hard_limit:
            object.__setattr__(self, "hard_limit", int(1.5 * self.target))
        if self.hard_limit < self.target:
            raise ValueError(f"hard_limit {self.hard_limit} is below target {self.target}")
        if self.min_flush > self.target:
            raise ValueError(
                f"min_flush {self.min_flush} is above target {self.target}; lower it, or no "
                "silence closes a window"
            )
        for name in ("max_age", "flush_after"):
            value = getattr(self, name)
            if value is not None and value <= timedelta(0):
                raise ValueError(f"{name} must be longer than 0 seconds")
        if self.verbatim_tokens > _SMALL_INPUT:
            raise ValueError(
                f"the levels cannot converge: verbatim_tokens is {self.verbatim_tokens}; set "
                f"at most {_SMALL_INPUT}"
            )
        for number, level in enumerate(self.levels, start=1):
            # An input just over the verbatim threshold must come out smaller than it went in, and
            # two children at the floor must not make a parent as large as they are together.
            smallest = self.verbatim_tokens if self.unit == "tokens" else 2 * max(level.floor, 1)
            if level.floor > smallest:
                raise ValueError(
                    f"level {number} cannot converge: floor {level.floor} is above its "
                    f"smallest input; set at most {smallest}"
                )
        return self

    @classmethod
    def by_tokens(cls, **overrides: Any) -> HierarchyConfig:
        """Return the tokens preset: windows of 2,000 tokens or ten messages, groups of 5 and 3.

        >>> HierarchyConfig.by_tokens(target=1000).hard_limit
        1500
        """
        return cls(**overrides)

    @classmethod
    def by_chars(cls, **overrides: Any) -> HierarchyConfig:
        """Return the characters preset: windows of 6,000 code points, groups of 10,000.

        It also takes the published names ``window_chars``, ``min_flush_chars``, ``overlap_chars``,
        ``wiggle`` (tolerance of windows and groups) and ``group_chars``. Where ``min_flush`` is not
        given, it is 3,000, and at most half of the target.
        """
        names = {
            "window_chars": "target",
            "min_flush_chars": "min_flush",
            "overlap_chars": "overlap",
        }
        settings: dict[str, Any] = {names.get(name, name): v for name, v in overrides.items()}
        group_chars, wiggle = settings.pop("group_chars", None), settings.pop("wiggle", None)
        levels: tuple[LevelConfig, ...] = settings.pop("levels", _char_levels())
        if wiggle is not None:
            settings.setdefault("tolerance", wiggle)
        if levels and not (group_chars is None and wiggle is None):
            groups = (replaced(each, max_size=group_chars, tolerance=wiggle) for each in levels[1:])
            levels = (levels[0], *groups)
        target: Any = settings.get("target", 6000)
        preset: dict[str, Any] = {
            "unit": "chars",
            "target": 6000,
            "max_messages": None,
            "max_age": None,
            "flush_after": timedelta(minutes=20),
            "min_flush": min(3000, target // 2) if isinstance(target, int) else 3000,
            "ratio_only": True,
        }
        merged: dict[str, Any] = {**preset, **settings, "levels": levels}
        return cls(**merged)

    @classmethod
    def from_published(
        cls, mapping: Mapping[str, Any], *, base: HierarchyConfig | None = None
    ) -> HierarchyConfig:
        """Return the configuration that published keys describe, such as ``windowChars``.

        Keys that are not given keep the values of ``base``; without one, those of the preset in
        characters if sizes are given in characters or only keys of ``summaries.update`` are given,
        and else of the preset in tokens. ``hard_limit`` and ``min_flush`` follow the target where
        they did in ``base``. ``hiermem.published.settings`` reads all published keys.

        >>> HierarchyConfig.from_published({"windowChars": 4000, "flushAfterMs": 1000}).hard_limit
        6000

        Raises ConfigError for a key that is not known, or is no setting of the hierarchy, and for
        what no configuration may be.
        """
        given = published_keys.read(mapping)
        for setting, (name, _) in given.items():
            target, _, rest = setting.partition(".")
            if target != "config":
                raise ConfigError(
                    f"{name} is no hierarchy setting; see {rest} in .{target} of "
                    "hiermem.published.settings"
                )
        names = list(dict.fromkeys(name for name, _ in given.values()))
        base = _base_of(names, base)
        changes = {setting.partition(".")[2]: value for setting, (_, value) in given.items()}
        try:
            return cls(**_changed(base, changes))
        except ConfigError as error:
            raise type(error)(f"{error}; given were {', '.join(names)}") from None

    def level(self, number: int) -> LevelConfig:
        """Return the settings of level ``number``, 1 or more."""
        last = len(self.levels)
        if number <= last:
            return self.levels[number - 1]
        top = self.levels[-1]
        if top.max_messages is None:
            return top
        return top.model_copy(update={"max_messages": top.max_messages * 5 ** (number - last)})

    def to_json(self) -> str:
        """Write it as canonical JSON."""
        return self.model_dump_json()

    @classmethod
    def from_json(cls, text: str) -> HierarchyConfig:
        """Read what ``to_json`` wrote."""
        return cls.model_validate_json(text)


def ageless(config: HierarchyConfig) -> HierarchyConfig:
    """Return a configuration without ``max_age``, as for an import: its clock has long passed."""
    return config if config.seal_policy == "time" else config.model_copy(update={"max_age": None})


def _base_of(names: list[str], base: HierarchyConfig | None) -> HierarchyConfig:
    """Return the configuration that published keys change. Raises ConfigError for mixed units."""
    keys = published_keys.keys()
    by_unit = {
        unit: [name for name in names if keys[name].unit == unit] for unit in ("chars", "tokens")
    }
    sized = [unit for unit, found in by_unit.items() if found]
    if len(sized) > 1:
        raise ConfigError(
            f"{by_unit['chars'][0]} is in characters, {by_unit['tokens'][0]} in tokens; use "
            "one unit for all sizes"
        )
    if base is None:
        plans = {keys[name].plan for name in names}
        chars = sized == ["chars"] or (not sized and plans == {"summaries"})
        return HierarchyConfig.by_chars() if chars else HierarchyConfig.by_tokens()
    if not isinstance(base, HierarchyConfig):
        raise ConfigError(f"base is {type(base).__name__}; it must be a HierarchyConfig")
    if sized and sized != [base.unit]:
        raise ConfigError(
            f"{', '.join(by_unit[sized[0]])}: sizes in {sized[0]}, but base is in {base.unit}"
        )
    return base


def _changed(base: HierarchyConfig, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of ``base`` with ``changes``, and with what follows from them."""
    own = {name: value for name, value in changes.items() if "." not in name}
    target = own.get("target", base.target)
    followed: dict[str, Any] = {}
    if base.hard_limit == int(1.5 * base.target):
        followed["hard_limit"] = int(1.5 * target)
    if base.unit == "chars" and base.min_flush == min(3000, base.target // 2):
        followed["min_flush"] = min(3000, target // 2)
    count = max(len(base.levels), 3 if any(name.startswith("levels.3") for name in changes) else 1)
    levels = [base.level(number).model_dump() for number in range(1, count + 1)]
    for name, value in changes.items():
        where, _, setting = name.rpartition(".")
        if where == "groups":
            for level in levels[1:]:
                level[setting] = value
        elif where:
            for number in _levels_of(where, setting, count):
                grown = 5 ** (number - 3) if number > 3 and setting == "max_messages" else 1
                levels[number - 1][setting] = value * grown
    return {**base.model_dump(), **followed, **own, "levels": levels}


def _levels_of(where: str, setting: str, count: int) -> range:
    """Return the levels that a published key of a level sets.

    The levels above 3 are like level 3, except in how much shorter a text is than what it is of.
    """
    number = int(where.partition(".")[2])
    return range(number, number + 1 if number < 3 or setting == "target_ratio" else count + 1)
