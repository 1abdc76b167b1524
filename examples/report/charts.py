"""Charts as plain SVG: a page needs no script and no network to show them."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

#: Distinguishable with colour blindness (Okabe and Ito) and on light and dark backgrounds.
COLOURS = (
    *("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a800", "#7f7f7f"),
    "#999999",
)
WIDTH, HEIGHT = 720, 260
LEFT, RIGHT, TOP, BOTTOM = 70, 10, 10, 30
#: Greatest number of labels below an axis that do not overlap.
LABELS = 8


def human(number: float) -> str:
    """Format a number with three digits and a unit: 1.23 M."""
    for unit in ("", " k", " M", " G", " T"):
        if abs(number) < 1000:
            return f"{number:.3g}{unit}"
        number /= 1000
    return f"{number:,.0f} P"


def stacked(labels: Sequence[str], series: dict[str, list[int]]) -> str:
    """Return stacked areas, one per name. A single label gives bars as wide as the chart."""
    if len(labels) == 1:
        labels = [*labels, ""]
        series = {name: values * 2 for name, values in series.items()}
    totals = [sum(values[i] for values in series.values()) for i in range(len(labels))]
    most = max([1, *totals])
    base = [0.0] * len(labels)
    parts = _axes(labels, most)
    for (name, values), colour in zip(series.items(), COLOURS, strict=False):
        above = [b + v for b, v in zip(base, values, strict=True)]
        outline = [_point(i, v, len(labels), most) for i, v in enumerate(above)]
        outline += [_point(i, v, len(labels), most) for i, v in reversed(list(enumerate(base)))]
        text = f"{name}: {human(values[-1])}"
        parts.append(
            f'<polygon points="{" ".join(outline)}" fill="{colour}">'
            f"<title>{escape(text)}</title></polygon>"
        )
        base = above
    return _svg(parts) + _legend(list(series))


def bars(values: Sequence[tuple[str, float]]) -> str:
    """Return horizontal bars, each with its name and number."""
    most = max([1.0, *(value for _, value in values)])
    row, wide = 24, WIDTH - 320
    parts = []
    for number, (name, value) in enumerate(values):
        y = number * row
        parts.append(
            f'<text x="{WIDTH - wide - 90}" y="{y + 16}" text-anchor="end">{escape(_short(name))}</text>'
            f'<rect x="{WIDTH - wide - 80}" y="{y + 4}" width="{max(1, wide * value / most):.1f}" '
            f'height="{row - 8}" fill="{COLOURS[0]}"><title>{escape(name)}</title></rect>'
            f'<text x="{WIDTH - wide - 75 + wide * value / most:.1f}" y="{y + 16}">{human(value)}</text>'
        )
    return _svg(parts, row * len(values))


def _point(index: int, value: float, count: int, most: float) -> str:
    x = LEFT + (WIDTH - LEFT - RIGHT) * index / (count - 1)
    y = HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / most
    return f"{x:.1f},{y:.1f}"


def _axes(labels: Sequence[str], most: float) -> list[str]:
    parts = []
    for quarter in range(5):
        x, y = _point(0, most * quarter / 4, 2, most).split(",")
        parts.append(
            f'<line class="grid" x1="{x}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>'
            f'<text x="{LEFT - 6}" y="{float(y) + 4}" text-anchor="end">'
            f"{human(most * quarter / 4)}</text>"
        )
    step = max(1, -(-len(labels) // LABELS))
    for index in range(0, len(labels), step):
        x, _ = _point(index, 0, len(labels), most).split(",")
        parts.append(
            f'<text x="{x}" y="{HEIGHT - 8}" text-anchor="middle">{escape(labels[index])}</text>'
        )
    return parts


def _legend(names: Sequence[str]) -> str:
    entries = "".join(
        f'<li><span style="background:{colour}"></span>{escape(name)}</li>'
        for name, colour in zip(names, COLOURS, strict=False)
    )
    return f'<ul class="legend">{entries}</ul>'


def _short(name: str) -> str:
    """Return the end of a dotted name, which is more telling than its beginning."""
    return name if len(name) <= 30 else f"…{name[-29:]}"


def _svg(parts: Sequence[str], height: int = HEIGHT) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img">{"".join(parts)}</svg>'
