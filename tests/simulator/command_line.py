"""The command line of ``python -m tests.simulator``.

``Options.arguments()`` replays a run: it returns arguments that are parsed to the same options again.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tests.simulator.canaries import CANARIES
from tests.simulator.disk import DISKS
from tests.simulator.run import Options
from tests.simulator.shrink import FAULTS, KNOB_NAMES, SITES
from tests.simulator.workloads import WORKLOADS


def parser(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulator",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--seeds", type=_seeds, help="FIRST:END, or numbers; default 0:100, or the canary's")
    add("--seconds", type=float, help="virtual time with faults, 10 by default")
    add("--workloads", type=_names(WORKLOADS), help=f"names, of {','.join(WORKLOADS)}")
    add("--faults", type=_names([*FAULTS, "none"]), help=f"kinds, of {','.join(FAULTS)}; or none")
    add("--sites", type=_names([*SITES, "none"]), help="fault sites that may fire; or none")
    add("--knobs", type=_names([*KNOB_NAMES, "none"]), help="knobs that may be turned; or none")
    add("--disk", choices=sorted(DISKS), help="default: chosen by the seed")
    add("--storages", type=_positive, help="default: chosen by the seed")
    add("--replicas", type=int, help="default: chosen by the seed")
    add("--backup", choices=("yes", "no"), help="a second cluster; default: chosen by the seed")
    add("--sync", choices=("yes", "no"), help="a synchronous backup; default: chosen by the seed")
    add("--masters", type=_positive, help="of each cluster; default: chosen by the seed")
    add(
        "--scrub", type=float, help="seconds in which all copies are compared; default: by the seed"
    )
    add("--blobs", choices=("yes", "no"), help="with blobs, or without; default: chosen by the seed")
    add("--operations", choices=("yes", "no"), help="maintenance in steps; default: by the seed")
    add("--archives", choices=("yes", "no"), help="backups into archives; default: by the seed")
    add("--kept", choices=("yes", "no"), help="clients keep their caches; default: by the seed")
    add("--monitored", choices=("yes", "no"), help="somebody asks for figures; default: by seed")
    add("--machines", choices=("yes", "no"), help="nodes that share a process; default: by the seed")
    add("--canary", choices=sorted(CANARIES), metavar="NAME", help="plant this bug")
    add("--full-mix", action="store_true", help="with --canary: without the options it needs")
    add("--once", action="store_true", help="do not compare a second run")
    add("--jobs", type=_positive, default=os.cpu_count() or 1, help="processes")
    add("--story", type=int, default=60, help="lines to show of a failing run")
    add("--keep-going", action="store_true", help="do not stop at a failure")
    add("--shrink", action="store_true", help="look for a shorter failing run")
    add(
        "--canaries",
        nargs="?",
        const=tuple(CANARIES),
        type=_names(CANARIES),
        metavar="NAMES",
        help="find each planted bug within its seeds, or each that is named",
    )
    add("--choose", type=_positive, metavar="COUNT", help="seeds that together reach most")
    add("--coverage", action="store_true", help="run seeds once, and report lines of the cores")
    return parser


def _seeds(text: str) -> Sequence[int]:
    seeds: list[int] = []
    for part in text.split(","):
        first, _, end = part.partition(":")
        seeds += range(int(first), int(end) if end else int(first) + 1)
    return seeds


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1 is needed")
    return number


class _names:
    """An argparse type: known names, separated by commas."""

    def __init__(self, known: Iterable[str]) -> None:
        self._known = list(known)

    def __call__(self, text: str) -> tuple[str, ...]:
        names = tuple(text.split(","))
        for name in names:
            if name not in self._known:
                raise argparse.ArgumentTypeError(f"{name!r} is not one of {','.join(self._known)}")
        return names


def options_of(arguments: argparse.Namespace) -> Options:
    """Return the options of a run. The canary, if there is one, gives the defaults."""
    options = Options(canary=arguments.canary)
    if arguments.canary and not arguments.full_mix:
        options = replace(options, **CANARIES[arguments.canary].options)
    given = {
        name: getattr(arguments, name) for name in Options.__dataclass_fields__ if name != "canary"
    }
    for name in ("backup", "sync", "blobs", "operations", "archives", "machines", "kept", "monitored"):
        given[name] = {None: None, "yes": True, "no": False}[given[name]]
    return replace(options, **{name: value for name, value in given.items() if value is not None})
