"""Draws what ``frontier.py`` measured as one SVG picture: what a context holds against its cost.

A panel for each corpus and budget; further up is more, further left is cheaper.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

__all__ = ["draw"]

_COLOURS = {
    "hiermem": "#177245",
    "hiermem, sticky=False": "#0b3d91",
    "sliding window": "#8a8f98",
    "rolling summary, sliding": "#b07d2b",
    "rolling summary, sticky": "#b5562b",
}
_WIDE, _HIGH = 230, 170
_LEFT, _TOP, _GAP_X, _GAP_Y = 52, 64, 44, 74
_HEAD = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" role="img" '
    'font-family="system-ui, sans-serif" font-size="12">'
)
#: The costs that the axis names; it is logarithmic.
_COSTS = (1, 2, 4, 8, 16, 32)
_LEAST = 0.4


def draw(corpora: Mapping[str, Mapping[str, Any]], budgets: Sequence[int]) -> str:
    """Draw a row of panels for each corpus, one for each budget."""
    wide = _LEFT + len(budgets) * (_WIDE + _GAP_X)
    high = _TOP + len(corpora) * (_HIGH + _GAP_Y)
    parts = [
        _HEAD.format(wide=wide, high=high),
        "<title>Gold answers' words in a live context, by what the context costs</title>",
        f'<rect width="{wide}" height="{high}" fill="#ffffff"/>',
        *_legend(),
    ]
    for row, (corpus, figures) in enumerate(corpora.items()):
        for column, budget in enumerate(budgets):
            x, y = _LEFT + column * (_WIDE + _GAP_X), _TOP + row * (_HIGH + _GAP_Y)
            parts.append(f'<g transform="translate({x} {y})">')
            parts += _axes(f"{corpus}, {budget:,} tokens", named=column == 0)
            own = {
                name.rpartition("|")[0]: values
                for name, values in figures.items()
                if name.endswith(f"|{budget}")
            }
            parts += _points(own)
            parts.append("</g>")
    return "\n".join([*parts, "</svg>"]) + "\n"


def _legend() -> Iterator[str]:
    x = _LEFT
    for name, colour in _COLOURS.items():
        yield f'<circle cx="{x}" cy="22" r="4.5" fill="{colour}"/>'
        yield f'<text x="{x + 10}" y="26" fill="#222">{escape(name)}</text>'
        x += 34 + 7 * len(name)


def _axes(title: str, *, named: bool) -> Iterator[str]:
    yield f'<text x="0" y="-10" font-weight="600" fill="#222">{escape(title)}</text>'
    for step in range(int(_LEAST * 10), 11, 2):
        y = _down(step / 10)
        yield f'<path d="M0 {y:.1f}h{_WIDE}" stroke="#e3e5e8"/>'
        if named:
            yield (
                f'<text x="-8" y="{y + 4:.1f}" text-anchor="end" fill="#555">{step / 10:g}</text>'
            )
    for cost in _COSTS:
        yield (
            f'<text x="{_across(cost):.1f}" y="{_HIGH + 18}" text-anchor="middle" '
            f'fill="#555">{cost}</text>'
        )
    yield (
        f'<text x="{_WIDE / 2:g}" y="{_HIGH + 36}" text-anchor="middle" fill="#555">'
        "tokens not cached, per new token</text>"
    )


def _points(figures: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """Draw a dot for each policy; the sticky summaries of several sizes are joined by a line."""
    joined: list[tuple[float, float]] = []
    for name, values in figures.items():
        kind = next((each for each in sorted(_COLOURS, reverse=True) if name.startswith(each)), "")
        if not kind or math.isnan(values["gold"]):
            continue
        x, y = _across(values["cost"]), _down(values["gold"])
        if kind == "rolling summary, sticky":
            joined.append((x, y))
        ours = 6 if kind == "hiermem" else 4
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{ours}" fill="{_COLOURS[kind]}"/>'
    if len(joined) > 1:
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in joined)
        colour = _COLOURS["rolling summary, sticky"]
        yield f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>'


def _across(cost: float) -> float:
    return _WIDE * math.log(max(1.0, cost)) / math.log(_COSTS[-1])


def _down(gold: float) -> float:
    return _HIGH * (1 - (max(gold, _LEAST) - _LEAST) / (1 - _LEAST))
