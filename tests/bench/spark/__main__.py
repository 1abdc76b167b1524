"""Measure how many rows Spark reads per second, compared with one process, in one run."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path

from rich.console import Console
from ZODB.DB import DB

from examples.demo import stdlib
from tests.bench import clients
from tests.bench.spark.database import PARTITIONS, REPLICAS, STORAGES, fill
from tests.bench.spark.report import markdown, to_json
from tests.bench.spark.run import SECONDS_MAX, Bench, Say
from tests.support.cluster import Cluster

QUICK_REVISIONS = 2_000
QUICK_MODULES = 5


def _demo(cluster: Cluster, modules: int | None) -> None:
    """Load the database of ``make demo``."""

    def load() -> None:
        database = DB(cluster.storage())
        files = stdlib.find_modules(stdlib.standard_library())
        stdlib.load_library(database, dict(islice(files.items(), modules)))
        database.close()

    clients.run(load, SECONDS_MAX)


@contextmanager
def _running(folder: Path, write: Callable[[Cluster], None], say: Say) -> Iterator[Cluster]:
    """Yield a cluster in ``folder``, with the database of a former run, or a new one."""
    complete = folder / "complete"
    with Cluster(
        storages=STORAGES, replicas=REPLICAS, partitions=PARTITIONS, folder=folder
    ) as cluster:
        if not complete.exists():
            say(f"  {folder} is filled")
            write(cluster)
            complete.touch()
        yield cluster


def main(arguments: list[str] | None = None) -> int:
    """Run and print the tables. Raise ClientFailed."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.spark", description=__doc__)
    parser.add_argument(
        "--revisions", type=int, default=1_000_000, help="of the generated database (1,000,000)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="default: 3, with --quick 1")
    parser.add_argument("--quick", action="store_true", help="shows that everything works")
    parser.add_argument(
        "--only", choices=["generated", "demo"], help="one of the databases (default: both)"
    )
    parser.add_argument(
        "--limit",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="for one process: a rate is of what was read until then (default: 60)",
    )
    parser.add_argument("--folder", type=Path, help="keep the databases there, for other runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables here")
    options = parser.parse_args(arguments)
    revisions, rounds, modules = options.revisions, options.rounds, None
    if options.quick:
        revisions, rounds, modules = QUICK_REVISIONS, 1, QUICK_MODULES
    databases: dict[str, Callable[[Cluster], None]] = {
        "generated": lambda cluster: fill(cluster, revisions),
        "demo": lambda cluster: _demo(cluster, modules),
    }
    say = Console(stderr=True, highlight=False, markup=False).print
    found = {}
    with ExitStack() as stack:
        top = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name, write in databases.items():
            if options.only in (None, name):
                say(name)
                folder = top / (f"generated-{revisions}" if name == "generated" else name)
                with _running(folder, write, say) as cluster:
                    found[name] = Bench(cluster, options.limit, say).run(rounds, folder)
    if options.json is not None:
        options.json.write_text(json.dumps(to_json(found), indent=1) + "\n")
    if options.markdown is not None:
        options.markdown.write_text(markdown(found))
    print(markdown(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
