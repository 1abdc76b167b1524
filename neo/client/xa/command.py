"""The command line of ``neoresolve``.

Exit codes: 0 settled, or left alone because an application is at work; 1 something could not be settled,
or a database contradicts the coordinator; 2 wrong options.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib import import_module
from typing import Any

from ZODB.POSException import POSError

from neo import __version__
from neo.client import uri
from neo.client.errors import ConfigurationError, UnavailableError
from neo.client.xa.branches import DBAPIBranch
from neo.client.xa.resolving import OLDER_THAN, Settled, resolve

#: Drivers for DSNs of other databases, the best first. Both have the two-phase extension of DB-API 2.0.
DRIVERS = ("psycopg", "psycopg2")


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="neoresolve",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Settle the transactions over several databases that a crash left prepared:\n"
        "committed or rolled back everywhere, as the coordinator decided.",
        epilog="DATABASE: neo://name@host:port or neos://…, or NAME=DSN for PostgreSQL, with the\n"
        "name that the application gave it. Name all databases of the application. A\n"
        "password on the command line is visible to all users of the machine: keep that\n"
        "of a DSN in ~/.pgpass, or in PGPASSWORD.\n\n"
        "example:\n  neoresolve --coordinator neo://shop@10.0.0.1:2050 'orders=host=db1 dbname=orders'",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    parser.add_argument(
        "--coordinator", required=True, metavar="URI", help="the NEO database that decides"
    )
    parser.add_argument("branches", nargs="*", metavar="DATABASE")
    parser.add_argument(
        "--older-than",
        type=_seconds,
        default=OLDER_THAN,
        metavar="SECONDS",
        help="roll back what is undecided for longer; longer than any commit of the application takes"
        " (default: %(default)g)",
    )
    parser.add_argument(
        "--acknowledge",
        action="append",
        default=[],
        metavar="XID",
        help="forget a contradiction, which was printed, between a database and the coordinator",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="change nothing, say what would be done"
    )
    return parser


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return seconds


def main(argv: Sequence[str] | None = None) -> int:
    """Settle; print what was done. Return the exit code."""
    options = make_parser().parse_args(argv)
    with ExitStack() as stack:
        try:
            if not _is_neo(options.coordinator):
                raise ConfigurationError(
                    f"the coordinator is a NEO database: {options.coordinator}"
                )
            first, *others = [_factory(text) for text in (options.coordinator, *options.branches)]
            coordinator = _open(first, stack)
            branches, settled = [], []
            for text, factory in zip(options.branches, others, strict=True):
                try:
                    branches.append(_open(factory, stack))
                except UnavailableError as e:
                    # The outcomes that it needs are kept, as for a database that is not given.
                    settled.append(Settled(None, f"{text} cannot be asked: {e}", failed=True))
            settled += resolve(
                coordinator,
                branches,
                options.older_than,
                options.dry_run,
                acknowledged=options.acknowledge,
            )
        except ConfigurationError as e:
            print(f"neoresolve: {e}", file=sys.stderr)
            return 2
        except POSError as e:
            print(f"neoresolve: {e}", file=sys.stderr)
            return 1
    for line in settled:
        print(line, file=sys.stderr if line.failed else sys.stdout)
    if not settled:
        print("nothing is in doubt")
    return int(any(line.failed for line in settled))


def _is_neo(text: str) -> bool:
    return text.startswith(("neo://", "neos://"))


def _factory(text: str) -> Callable[[], Any]:
    """Return the function that opens a database. Raise ConfigurationError."""
    if _is_neo(text):
        factory, _ = (uri.resolve if text.startswith("neo:") else uri.resolve_tls)(text)
        return factory
    name, equals, dsn = text.partition("=")
    if not equals or "://" in name or not dsn:
        raise ConfigurationError(f"{text!r} is neither neo://name@host:port nor NAME=DSN")
    connect = _driver()
    return lambda: DBAPIBranch(name, lambda: connect(dsn))


def _open(factory: Callable[[], Any], stack: ExitStack) -> Any:
    """Open a database until the end of the command. Raise the errors of NEOStorage."""
    database = factory()
    stack.callback(database.close)
    return database


def _driver() -> Callable[[str], Any]:
    for name in DRIVERS:
        try:
            connect: Callable[[str], Any] = import_module(name).connect
        except ImportError:
            continue
        return connect
    raise ConfigurationError(
        "there is no driver for PostgreSQL: install psycopg (pip install 'zodb-neo[xa]')"
    )
