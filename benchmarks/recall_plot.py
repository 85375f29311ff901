"""Draws what ``recall.py`` measured as one SVG picture, by hand: lines over budgets, in panels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

__all__ = ["draw"]

#: Told apart without colour too: by their dashes and by their marks.
_STYLES = {
    "newest": ("#8a8f98", "1 4", "none"),
    "BM25": ("#b07d2b", "7 4", "none"),
    "nearest vectors": ("#5b8def", "2 3", "none"),
    "hiermem": ("#177245", "", "circle"),
    "hiermem with MiniLM": ("#0b3d91", "", "square"),
}
#: What the legend says where the table's word needs one more.
_CALLED = {"newest": "newest messages", "nearest vectors": "nearest vectors, MiniLM"}
_WIDE, _HIGH = 330, 210
_LEFT, _TOP, _GAP_X, _GAP_Y = 44, 64, 50, 72
_COLUMNS = 2


def draw(
    lines: Mapping[str, Mapping[str, Sequence[float]]],
    panels: Mapping[str, str],
    budgets: Sequence[int],
) -> str:
    """Draw a panel for each figure in ``panels``, which gives its title; the scale is 0 to 1."""
    rows = -(-len(panels) // _COLUMNS)
    wide = _LEFT + _COLUMNS * (_WIDE + _GAP_X)
    high = _TOP + rows * (_HIGH + _GAP_Y)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" role="img" '
        'font-family="system-ui, sans-serif" font-size="12">'
    )
    parts = [
        head,
        "<title>Evidence found, by the budget of tokens</title>",
        f'<rect width="{wide}" height="{high}" fill="#ffffff"/>',
        *_legend(lines),
    ]
    for place, (figure, title) in enumerate(panels.items()):
        x = _LEFT + place % _COLUMNS * (_WIDE + _GAP_X)
        y = _TOP + place // _COLUMNS * (_HIGH + _GAP_Y)
        parts.append(f'<g transform="translate({x} {y})">')
        parts += _axes(title, budgets)
        for name, groups in lines.items():
            parts += _line(name, groups[figure])
        parts.append("</g>")
    return "\n".join([*parts, "</svg>"]) + "\n"


def _legend(lines: Mapping[str, object]) -> Iterator[str]:
    x = _LEFT
    for name in lines:
        colour, dash, mark = _STYLES[name]
        yield (
            f'<path d="M{x} 22h30" stroke="{colour}" stroke-width="2.5" '
            f'stroke-dasharray="{dash}"/>{_mark(mark, x + 15, 22, colour)}'
            f'<text x="{x + 37}" y="26" fill="#222">{escape(_CALLED.get(name, name))}</text>'
        )
        x += 60 + 7 * len(_CALLED.get(name, name))


def _axes(title: str, budgets: Sequence[int]) -> Iterator[str]:
    yield f'<text x="0" y="-10" font-weight="600" fill="#222">{escape(title)}</text>'
    for step in range(6):
        y = _HIGH * (1 - step / 5)
        yield (
            f'<path d="M0 {y:g}h{_WIDE}" stroke="#e3e5e8"/>'
            f'<text x="-8" y="{y + 4:g}" text-anchor="end" fill="#555">{step / 5:g}</text>'
        )
    for place, budget in enumerate(budgets):
        x = _WIDE * place / (len(budgets) - 1)
        yield (
            f'<text x="{x:g}" y="{_HIGH + 18}" text-anchor="middle" fill="#555">{budget:,}</text>'
        )

    yield (
        f'<text x="{_WIDE / 2:g}" y="{_HIGH + 36}" text-anchor="middle" fill="#555">'
        "budget, tokens</text>"
    )


def _line(name: str, values: Sequence[float]) -> Iterator[str]:
    colour, dash, mark = _STYLES[name]
    points = [
        (_WIDE * place / (len(values) - 1), _HIGH * (1 - value))
        for place, value in enumerate(values)
    ]
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    yield (
        f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2.5" '
        f'stroke-dasharray="{dash}"/>'
    )
    yield "".join(_mark(mark, x, y, colour) for x, y in points)


def _mark(mark: str, x: float, y: float, colour: str) -> str:
    if mark == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>'
    if mark == "square":
        return f'<path d="M{x - 3.5:.1f} {y - 3.5:.1f}h7v7h-7z" fill="{colour}"/>'
    return ""
