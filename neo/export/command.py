"""The command line of ``neoexport``.

Exit codes: 0 done, 1 impossible or incomplete, 2 wrong options, 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from rich.console import Console
from ZODB.POSException import POSError

from neo import __version__
from neo.migrate.console import run
from neo.migrate.errors import MigrateError
from neo.protocol.ids import parse_tid


def _tid(text: str) -> int:
    """Parse a tid as the options of Spark do: an integer, 0x…, or 16 hexadecimal digits."""
    return int.from_bytes(parse_tid(f"0x{text}" if len(text) == 16 else text), "big")


def _positive(text: str) -> int:
    number = int(text)
    if number <= 0:
        raise ValueError(text)
    return number


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="neoexport",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Write a ZODB storage as Parquet files: the tables objects, history, changes,\n"
        "transactions and references that Spark reads from NEO. The same command again\n"
        "appends what is new, or goes on after an interruption.",
        epilog="SOURCE: the path of a FileStorage (*.fs), a URI such as neo://name@host:port, or\n"
        "the name of a section of the --config file.\n\n"
        "example:\n  neoexport --parquet /srv/lake/shop neo://shop@10.0.0.1:2050",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    parser.add_argument("source", metavar="SOURCE")
    parser.add_argument("--parquet", type=Path, metavar="DIR", required=True, help="where to")
    parser.add_argument("--config", type=Path, metavar="FILE", help="ZConfig file of storages")
    parser.add_argument(
        "--since",
        type=_tid,
        metavar="TID",
        help="what is up to this transaction is there already, or not wanted: an empty folder then "
        "gets only changes and transactions",
    )
    parser.add_argument(
        "--full", action="store_true", help="everything anew, in the place of what is there"
    )
    parser.add_argument(
        "--columns", metavar="LIST", help="columns of revisions (default: all but data)"
    )
    parser.add_argument(
        "--jobs",
        type=_positive,
        metavar="N",
        help="processes (default: as many as processors; one for a folder of neo+embedded://)",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the export; return the exit code."""
    options = make_parser().parse_args(argv)
    console = Console(stderr=True, highlight=False, quiet=options.quiet)
    try:
        from pyarrow import ArrowException
    except ImportError:
        print("neoexport: pyarrow is missing: pip install 'zodb-neo[parquet]'", file=sys.stderr)
        return 1
    from neo.export.exporting import Wanted, export
    from neo.export.plan import ExportError

    wanted = Wanted(**{field.name: getattr(options, field.name) for field in fields(Wanted)})
    failures = ExportError, MigrateError, POSError, OSError, ArrowException
    return run("neoexport", lambda warned: export(wanted, console), failures)
