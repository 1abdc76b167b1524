"""``python -m examples.demo``: start a cluster, run real workloads, show the results, stop it.

Exit codes: 0 all results are right, 1 a failure with one sentence, 130 interrupted.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ZODB.FileStorage import FileStorage
from ZODB.POSException import POSError

from examples.demo import scenes, stdlib
from examples.demo.editing import review_by_processes
from examples.demo.opening import UnknownAddress, open_database, open_storage
from examples.demo.show import Show
from neo.migrate import MigrateError
from neo.migrate.console import report_source
from neo.migrate.opening import open_source
from neo.simple import Cluster, ClusterError

NAME = "demo"
STORAGES = 2
PARTITIONS = 12
REVIEWERS = ("Ada", "Barbara", "Grace", "Hedy")
# Enough for conflicts between reviewers, few enough to watch.
TOPICS = 25
NEOCTL = (("status",), ("print", "cluster"), ("print", "node"), ("print", "pt"), ("print", "ids"))
# neoctl answers at once, or reports within a few seconds that the admin node does not.
NEOCTL_SECONDS = 30
# Errors that a user can mend. Any other error is a bug and shows its traceback.
FAILURES = (
    OSError,
    POSError,
    UnknownAddress,
    scenes.WrongDatabase,
    scenes.PromiseBroken,
    BrokenProcessPool,
    ClusterError,
    MigrateError,
)


class Place(NamedTuple):
    """The address of the database.

    ``admin``: the address for neoctl if the demonstration owns the cluster.
    """

    uri: str
    admin: str | None


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.demo", description="A NEO cluster at work on real input."
    )
    add = parser.add_argument
    add("--data", type=Path, metavar="DATA.FS", help="copy this file instead of Python's library")
    add("--folder", type=Path, help="where the cluster keeps its files (default: a temporary one)")
    add("--keep", action="store_true", help="leave the files (in ./demo-data)")
    add("--storage-uri", metavar="URI", help="use this ZODB storage, without a cluster of our own")
    add("--modules", type=int, metavar="N", help="load only the first N modules of the library")
    options = parser.parse_args(argv)
    if options.data and not options.data.is_file():
        parser.error(f"{options.data} is not a file")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demonstration and return the exit code."""
    options = arguments(argv)
    show = Show()
    try:
        if options.data:
            # Report a damaged file before anything starts.
            with closing(open_source(str(options.data), None)) as source:
                report_source(source, "examples.demo")
        with database(show, options) as place:
            run(show, options, place, partial(review_by_processes, place.uri))
    except FAILURES as error:
        print(f"examples.demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("examples.demo: interrupted; everything that it started has ended", file=sys.stderr)
        return 130
    return 0


def run(show: Show, options: argparse.Namespace, place: Place, pool: scenes.ReviewerPool) -> None:
    """Run all scenes against one database."""
    if options.data:
        with (
            closing(FileStorage(str(options.data), read_only=True)) as source,
            closing(open_storage(place.uri)) as storage,
        ):
            scenes.copy_datafs(show, storage, options.data, source)
            topics = scenes.ask_datafs(show, storage)
    with closing(open_database(place.uri)) as db:
        if not options.data:
            folder = stdlib.standard_library()
            topics = scenes.load_standard_library(show, db, folder, options.modules)
            scenes.ask_library(show, db)
        before = scenes.edit_together(show, db, REVIEWERS, topics[:TOPICS], pool)
        scenes.undo_a_mistake(show, db)
        scenes.look_back(show, db, before)
        if place.admin:
            show_neoctl(show, place.admin)


@contextmanager
def database(show: Show, options: argparse.Namespace) -> Iterator[Place]:
    """Yield the given database, or a new cluster that runs during the block."""
    if options.storage_uri:
        yield Place(options.storage_uri, None)
        return
    with files(show, options) as folder:
        show.scene(f"Starting a cluster: one master, {STORAGES} storage nodes, one admin node")
        with Cluster(folder, name=NAME, storages=STORAGES, partitions=PARTITIONS) as cluster:
            show.say(f"applications open  {cluster.uri}")
            show.say(f"operators type     neoctl -a {cluster.admin_address} status")
            yield Place(cluster.uri, cluster.admin_address)
            show.scene("Stopping")
        show.say("All processes ended.", "green")


@contextmanager
def files(show: Show, options: argparse.Namespace) -> Iterator[Path]:
    """Yield the folder of the cluster; remove it afterwards unless the user named it or keeps it."""
    if not (options.folder or options.keep):
        with tempfile.TemporaryDirectory(prefix="neo-demo-") as folder:
            yield Path(folder)
        return
    kept = (options.folder or Path("demo-data")).absolute()
    kept.mkdir(parents=True, exist_ok=True)
    yield kept
    show.say(f"The files are in {kept}; serve them again with: neosimple --folder {kept}")


def show_neoctl(show: Show, admin: str) -> None:
    """Show the output of neoctl."""
    show.scene("What neoctl says")
    for words in NEOCTL:
        command = (sys.executable, "-m", "neoctl", "-a", admin, *words)
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=NEOCTL_SECONDS, check=False
        )
        show.quote(f"neoctl -a {admin} {' '.join(words)}", answer.stdout + answer.stderr)
        scenes.promise(answer.returncode == 0, f"neoctl {' '.join(words)} failed")


if __name__ == "__main__":
    sys.exit(main())
