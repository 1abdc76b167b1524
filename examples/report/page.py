"""The report as one self-contained HTML file."""

from __future__ import annotations

from datetime import datetime
from html import escape
from typing import Any

from examples.report.charts import bars, human, stacked
from examples.report.figures import Report, Table

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2 { line-height: 1.2; }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: 1rem; }
dt { opacity: .7; } dd { margin: 0; font-size: 1.5rem; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid #8884; }
td { overflow-wrap: anywhere; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
svg { width: 100%; height: auto; } svg text { font-size: 11px; fill: currentColor; }
.grid { stroke: #8884; }
.legend { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; }
.legend span { display: inline-block; width: .8em; height: .8em; margin-right: .4em; }
"""

#: title, field of the report, description
SECTIONS = (
    ("Classes", "classes", "What exists, by class."),
    ("Fastest growth", "growth", "Classes with more bytes than some days before."),
    (
        "Hottest objects",
        "hottest",
        "Objects that are written most often: where conflicts come from.",
    ),
    (
        "Broken references",
        "broken",
        "Strong references to objects that do not exist: whoever follows one gets a POSKeyError.",
    ),
    (
        "Garbage",
        "garbage",
        "What cannot be reached from the root by strong references; a pack would remove it, unless "
        "another database refers to it.",
    ),
)


def text(value: Any, name: str = "") -> str:
    """Format a cell; oids in hexadecimal."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M")
    if name in ("oid", "src", "dst", "first oid"):
        return f"{value:#x}"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float))


def html(report: Report) -> str:
    """Return the page. All values from the database are escaped."""
    growth = [(row[0], row[-1]) for row in report.growth.rows[:10]]
    totals = "".join(
        f"<div><dt>{escape(name)}</dt><dd title='{number:,}'>{human(number)}</dd></div>"
        for name, number in report.totals.items()
    )
    charts = {
        "growth": bars(growth) if growth else "",
        "classes": f"<h3>Objects</h3>{stacked(report.periods, report.objects)}"
        f"<h3>Bytes of current records</h3>{stacked(report.periods, report.size)}",
    }
    sections = "".join(
        f"<h2>{title}</h2><p>{about}</p>{charts.get(field, '')}{_table(getattr(report, field))}"
        for title, field, about in SECTIONS
    )
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width'>"
        f"<title>{escape(report.where)}</title><style>{_STYLE}</style>"
        f"<h1>{escape(report.where)}</h1><p>As of {text(report.until)} UTC.</p>"
        f"<dl>{totals}</dl>{sections}</html>"
    )


def _table(table: Table) -> str:
    if not table.rows:
        return "<p>None.</p>"
    numbers = [is_number(value) for value in table.rows[0]]
    head = "".join(
        f"<th{_class(number)}>{escape(name)}</th>"
        for name, number in zip(table.names, numbers, strict=True)
    )
    rows = "".join(
        "<tr>"
        + "".join(
            f"<td{_class(is_number(value))}>{escape(text(value, name))}</td>"
            for name, value in zip(table.names, row, strict=True)
        )
        + "</tr>"
        for row in table.rows
    )
    return f"<table><tr>{head}</tr>{rows}</table>"


def _class(number: bool) -> str:
    return ' class="number"' if number else ""
