"""Decides how a node is made, how long its text is, and when the extractive stand-in is due.

Every choice of an update is a function of values that were read before; ``node`` puts these choices
in their order for one node.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from hiermem.config import HierarchyConfig, UpdatePolicy
from hiermem.errors import ConfigError
from hiermem.prompts.template import Length, PromptTemplate
from hiermem.summaries.inputs import Inputs
from hiermem.text.measure import VERBATIM, input_hash, strategy_hash
from hiermem.tree.levels import weigh
from hiermem.types import Node, Revision
from hiermem.types.brief import Brief
from hiermem.types.transaction import Cost

#: Inputs are not cut into smaller pieces than this, which would say nothing one by one.
_LEAST_ROOM: Final = 64
#: A window, in tokens, with which most records are read in one request.
_GOOD_WINDOW: Final = 8_192
#: The hard limit of an answer, as a multiple of the requested length.
_HARD_RATIO: Final = 1.5
#: The most that a text of texts keeps of them.
_MOST_OF_TEXTS: Final = 0.5
#: The fewest tokens by which an answer may be longer than requested.
_HEADINGS_ROOM: Final = 80
#: The share of the allotted length that a style asks for, if not all of it.
_OF_ALLOTTED: Final[Mapping[str, float]] = {"concise": 0.6}
#: A plan's assumptions: seconds of a remote call, and tokens per second of local work.
_REMOTE_SECONDS: Final = 4.0
_LOCAL_TOKENS: Final = 250_000


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class UpdatePlan(Cost):
    """The work that an update would do; nothing was written and no model was called.

    ``calls`` and ``tokens_out`` are exact if every answer is fit and of the size that is asked for;
    ``tokens_in`` and, if the model has prices, ``cost`` are then right to 10 %. ``calls_max`` is
    the most if each answer is asked for once more; calls repeated because the provider failed come
    on top. ``by_level`` counts the nodes that get a text, ``reused`` those of them that need no
    call because the same inputs were summarised before. ``seconds`` is an estimate that respects
    the limits per minute.
    """

    calls_max: int = 0
    by_level: Mapping[int, int] = field(default_factory=dict[int, int])
    reused: int = 0
    reused_by_level: Mapping[int, int] = field(default_factory=dict[int, int])
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class UpdateCounts(Cost):
    """The nodes that updates worked on, what their calls took, and what ended them, if anything."""

    _added = (
        "calls", "tokens_in", "tokens_out", "made", "reused", "failed", "degraded", "unknown",
        "shortened",
    )  # fmt: skip

    made: int = 0
    reused: int = 0
    failed: int = 0
    degraded: int = 0
    unknown: int = 0
    shortened: int = 0
    stopped: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class UpdateReport(UpdateCounts):
    """The work that an update did.

    ``made``, ``reused``, ``degraded`` and ``failed`` count nodes, each node once: it got a new
    text, an earlier text, the extractive stand-in, or no new text. A stand-in that stays after
    another try is degraded too. ``by_level`` counts the first three by level. ``shortened`` counts
    the made texts that are an answer without some of its lines, as it was too long or cut off.
    ``calls`` are requests to the model, ``tokens_in`` and ``tokens_out`` their tokens, ``cost``
    their cost if the model has prices. ``unknown`` are requests cut off or timed out; whether they
    were charged is not known. ``stopped`` names the cap that ended the run. It is "model_down" if
    the provider kept failing; ``retry_after`` is then the number of seconds until it may be asked
    again, and ``last_error`` says why its last call failed. ``swapped`` is True if the tree of a
    full re-pack serves now. If not, the next re-pack continues this one, or starts from the
    beginning if the session was reconfigured in between. An update with nothing to do is no run:
    nothing is journalled, and ``run_id`` is None. ``more`` is True if ``update_one`` left something
    that can be made at once.
    """

    run_id: str | None = None
    by_level: Mapping[int, int] = field(default_factory=dict[int, int])
    swapped: bool = False
    retry_after: float | None = None
    last_error: str | None = None
    more: bool = False


@dataclass(frozen=True, slots=True)
class UpdateProgress(Brief):
    """The progress of an update. ``by_level`` holds (done, total) for each level that has work.

    ``done`` are the nodes that the run is finished with, ``total`` those that it works on.
    """

    done: int
    total: int
    by_level: Mapping[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class LevelPlan:
    """The plan of all nodes of one level: the prompt, the model, the strategy hash."""

    template: PromptTemplate
    style: str
    ratio: float
    strategy: str
    model: str

    @property
    def strategies(self) -> tuple[str, str]:
        """Return the strategies of current texts: this one, and the copy word for word."""
        return self.strategy, VERBATIM


def level_plan(
    level: int, template: PromptTemplate, *, config: HierarchyConfig, model: str, counter: str
) -> LevelPlan:
    """Return the plan by which nodes of ``level`` are made.

    The strategy includes the lengths of all levels below, because they decide the allotted sizes
    here, and for level 1 the size of the overlap with the window before.
    """
    settings = config.level(level)
    measures: list[object] = [config.unit, config.verbatim_tokens, config.ratio_only]
    if level == 1:
        measures.append(config.overlap)
    for number in range(1, level + 1):
        below = config.level(number)
        measures += [below.target_ratio, below.floor, below.cap]
    return LevelPlan(
        template=template,
        style=settings.style,
        ratio=settings.target_ratio * _OF_ALLOTTED.get(settings.style, 1.0),
        strategy=strategy_hash(
            template=template.identity,
            style=settings.style,
            lengths=measures,
            temperature=config.temperature,
            model=model,
            counter=counter,
        ),
        model=model,
    )


def node_hash(node: Node, inputs: Inputs, strategy: str) -> str:
    """Return the present input hash of ``node``, made by ``strategy``."""
    return made_hash(node.level, VERBATIM if node.verbatim else strategy, inputs)


def made_hash(level: int, strategy: str, inputs: Inputs) -> str:
    """Return the input hash of a text made of ``inputs`` by ``strategy``.

    A verbatim text does not depend on the overlap, because it does not use it.
    """
    overlap = "" if strategy == VERBATIM else inputs.overlap
    return input_hash(level=level, strategy=strategy, outputs=inputs.outputs, overlap=overlap)


def is_clean(node: Node, inputs: Inputs, serving: Revision, *, follow: Sequence[str] = ()) -> bool:
    """Return whether a dirty node's text was made from these very inputs.

    They are compared under the recorded strategy: another model's name alone makes nothing dirty.
    If the policy is to ``follow`` the present strategies, the recorded strategy must be among them.
    """
    if follow and serving.strategy not in follow:
        return False
    present = made_hash(node.level, serving.strategy, inputs)
    return present == serving.input_hash and not serving.degraded


def is_stand_in_of(serving: Revision | None, level: int, inputs: Inputs) -> bool:
    """Return whether a text is the stand-in that would be extracted from these inputs."""
    if serving is None or not serving.degraded:
        return False
    return made_hash(level, serving.strategy, inputs) == serving.input_hash


def lengths(node: Node, tokens: int, config: HierarchyConfig) -> Length:
    """Return the length to request and the hard limit, for inputs of ``tokens``.

    The length is the allotted one; 0.6 of it if the text is concise, whose node weighs as much as a
    detailed one: the structure does not depend on a style. It is less than the actual inputs (P8).
    Of children's texts, which may be much shorter than their allotted size, at most half is kept,
    unless the ratio is higher. Inputs of at most ``verbatim_tokens`` may keep their length. The
    limit leaves a short text room for its headings.
    """
    level, most = config.level(node.level), tokens - (tokens > config.verbatim_tokens)
    target = int(_OF_ALLOTTED.get(level.style, 1.0) * _allotted(node, config))
    if node.children and most < tokens:
        target = min(target, int(max(_MOST_OF_TEXTS, level.target_ratio) * tokens))
    target = max(1, min(target, most))
    limit = max(math.ceil(_HARD_RATIO * target), target + _HEADINGS_ROOM)
    return Length(target, max(1, min(limit, most)))


def _allotted(node: Node, config: HierarchyConfig) -> int:
    """Return the tokens that ``config`` allots to a node.

    They are those it was sealed with, unless the ratio changed since then. A new text takes the new
    ratio, while the weight of the node in the structure does not change.
    """
    if node.verbatim or node.unit != config.unit:
        return node.allotted_tokens
    allotted = weigh(config.level(node.level), node.input_size, verbatim=False)
    if allotted == node.allotted:
        return node.allotted_tokens
    return max(1, node.input_tokens * allotted // max(1, node.input_size))


def may_reuse(revision: Revision, length: Length) -> bool:
    """Return whether a text made elsewhere from the same inputs fits here as well.

    If its requested length is known, it must be the same; if it differs, the equal inputs were
    sealed under another configuration.
    """
    made_for = revision.extras.get("target", length.target)
    return revision.tokens <= length.limit and made_for == length.target


def room_for_inputs(window: int | None, *, inputs: int, answer: int, prompt: int) -> int | None:
    """Return the tokens that inputs may take at once in a model's ``window``; None is no limit.

    An excerpt of the ``inputs`` is answered with its share of the whole ``answer``, so a request
    grows by both together; an answer no longer than its inputs takes at most half of the room.
    Raises ConfigError if the window has no room for the smallest piece and its answer.
    """
    if window is None:
        return None
    free = window - prompt
    if free < 2 * _LEAST_ROOM:
        least = prompt + 2 * _LEAST_ROOM
        raise ConfigError(
            f"context_window {window:,} is too small for the prompt's {prompt:,} tokens; use "
            f"at least {least:,}, better {_GOOD_WINDOW:,}"
        )
    share = inputs / (inputs + min(answer, inputs)) if inputs else 0.5
    return math.floor(free * share)


def shortened(length: Length, *, shown: int, of: int) -> Length:
    """Return the share of a length for ``shown`` tokens ``of`` all inputs.

    A text is smaller than its inputs (P8).
    """
    if shown >= of:
        return length
    most = max(1, min(length.limit * shown // of, shown - 1))
    return Length(max(1, min(length.target * shown // of, most)), most)


Failure: TypeAlias = Literal["rejected", "transient", "permanent"]


def stand_in_is_due(kind: Failure, *, attempts: int, policy: UpdatePolicy) -> bool:
    """Return whether a failure after ``attempts`` tries calls for the stand-in.

    A permanent failure does at once, because the same call would fail again.
    """
    return kind == "permanent" or attempts >= policy.max_attempts


def seconds(calls: int, tokens: int, policy: UpdatePolicy, *, remote: bool) -> float:
    """Estimate the seconds of ``calls`` within the limits per minute."""
    if not remote:
        return tokens / _LOCAL_TOKENS
    waves = math.ceil(calls / policy.concurrency)
    in_waves = waves * _REMOTE_SECONDS + max(0, waves - 1) * policy.batch_delay
    # What a minute allows goes at once, the rest at that rate.
    per_minute = ((calls, policy.requests_per_minute), (tokens, policy.tokens_per_minute))
    return max([in_waves, *(60 * (many / most - 1) for many, most in per_minute if most)])
