"""The command line of a benchmark: its options, a run, and its tables."""

import argparse
import json
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from tests.bench.runner import Suite, run
from tests.bench.sizes import QUICK, Sizes
from tests.bench.systems import System

WIDTH = 180  # width of tables in a file or a pipe: seven systems side by side


def _chosen(known: Mapping[str, object]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        names = text.split(",")
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        return [name for name in known if name in names]

    return parse


def _parser(
    prog: str, description: str | None, systems: Mapping[str, object], suite: Suite
) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument(
        "--systems",
        type=_chosen(systems),
        default=list(systems),
        help=f"comma-separated, of {', '.join(systems)} (default: all)",
    )
    parser.add_argument(
        "--only",
        type=_chosen(suite.workloads),
        default=list(suite.workloads),
        help=f"workloads, of {', '.join(suite.workloads)} (default: all)",
    )
    parser.add_argument("--rounds", type=int, default=None, help="default: 3, with --quick 1")
    parser.add_argument(
        "--quick", action="store_true", help="sizes that show that everything works, and no more"
    )
    parser.add_argument(
        "--limit",
        type=float,
        metavar="SECONDS",
        help="for one rate; what takes longer is cut short and marked "
        f"(default {Sizes.__dataclass_fields__['seconds'].default:.0f}). An import, and what is one "
        "transaction or object, is done as a whole",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything here")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables here")
    parser.add_argument(
        "--log",
        type=Path,
        metavar="FILE",
        help="what the storages' clients log, warnings and worse, goes here (default: nowhere)",
    )
    return parser


def command(
    prog: str,
    description: str | None,
    systems: Mapping[str, Callable[[], System]],
    suite: Suite,
    arguments: list[str] | None,
) -> int:
    """Run and print the tables. Return 1 if a figure of NEO failed; a failure of another system is a
    result."""
    options = _parser(prog, description, systems, suite).parse_args(arguments)
    # Inherited by the clients, because ZEO logs a traceback for each late invalidation.
    logging.basicConfig(filename=options.log or os.devnull)
    sizes = QUICK if options.quick else Sizes()
    if options.limit is not None:
        sizes = replace(sizes, seconds=options.limit)
    rounds = options.rounds or (1 if options.quick else 3)

    progress = Console(stderr=True, highlight=False, markup=False)
    chosen = {name: systems[name] for name in options.systems}
    report = run(chosen, rounds, sizes, options.only, progress.print, suite)

    if options.json is not None:
        options.json.write_text(json.dumps(report.to_json(), indent=1, ensure_ascii=False) + "\n")
    if options.markdown is not None:
        options.markdown.write_text(report.markdown())
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH
    for table in report.rich_tables():
        console.print(table)
    return 1 if report.errors([name for name in chosen if name.startswith("neo-")]) else 0
