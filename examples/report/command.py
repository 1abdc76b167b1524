"""The command line of the report. Exit codes: 0 done, 1 not possible, 2 wrong options."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable
from ZODB.POSException import POSError

from examples.report.figures import Report, Tables, Wanted, make_report
from examples.report.page import SECTIONS, html, is_number, text
from neo.spark.options import OptionError

PERIODS = ("day", "week", "month", "year")


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m examples.report",
        description="What a database is made of, how it grows, and what is wrong in it: as tables, and "
        "as a page with charts. Reads a NEO cluster, or a folder that neoexport made.",
    )
    parser.add_argument("--parquet", metavar="DIR", help="a folder of neoexport")
    parser.add_argument("--masters", help="host:port of the masters of a cluster")
    parser.add_argument("--cluster", metavar="NAME", help="the name of the cluster")
    for name in ("ca", "cert", "key"):
        parser.add_argument(f"--{name}", metavar="FILE", help="for TLS")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with charts")
    parser.add_argument("--period", choices=PERIODS, default=Wanted.period, help="of the charts")
    parser.add_argument(
        "--days", type=int, default=Wanted.days, help="over which growth is measured"
    )
    parser.add_argument("--top", type=int, default=Wanted.top, help="rows of a table")
    options = parser.parse_args(argv)
    if (options.parquet is None) == (options.masters is None or options.cluster is None):
        parser.error("either --parquet, or --masters and --cluster")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Make the report; return the exit code. Use the active session of Spark, or a local one."""
    options = _arguments(argv)
    # Workers in the same environment as this process.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("examples.report")
    spark = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    try:
        report = make_report(
            _tables(spark, options), Wanted(options.period, options.days, options.top)
        )
        if options.html:
            options.html.write_text(html(report), encoding="utf-8")
    except (OptionError, POSError, OSError, ValueError, PySparkException) as e:
        print(f"examples.report: {e}", file=sys.stderr)
        return 1
    show(report, Console(highlight=False))
    if options.html:
        print(f"The page is {options.html}.")
    return 0


def _tables(spark: SparkSession, options: argparse.Namespace) -> Tables:
    if options.parquet is not None:
        return Tables.of_export(spark, options.parquet)
    named = {
        name: getattr(options, name)
        for name in ("masters", "cluster", "ca", "cert", "key")
        if getattr(options, name) is not None
    }
    return Tables.of_cluster(spark, **named)


def show(report: Report, console: Console) -> None:
    """Print the tables."""
    console.print(f"[bold]{escape(report.where)}[/], as of {text(report.until)} UTC")
    for name, number in report.totals.items():
        console.print(f"{number:>20,} {name}")
    for title, field, about in SECTIONS:
        table = getattr(report, field)
        console.print(f"\n[bold]{title}[/]  {about}")
        if not table.rows:
            console.print("None.")
            continue
        shown = RichTable(box=None, pad_edge=False)
        for name, value in zip(table.names, table.rows[0], strict=True):
            shown.add_column(name, justify="right" if is_number(value) else "left", overflow="fold")
        for row in table.rows:
            cells = zip(table.names, row, strict=True)
            shown.add_row(*(escape(text(value, name)) for name, value in cells))
        console.print(shown)
