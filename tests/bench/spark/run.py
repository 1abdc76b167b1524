"""Rounds in which all readers read the same database, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from tests.bench import clients
from tests.bench.spark import cpu
from tests.bench.spark.driver import Driver
from tests.bench.spark.readers import KINDS, Work, by_iterator, by_pages, count
from tests.support.cluster import Cluster

Say = Callable[[str], None]

#: When a client without an answer is killed; the readers have limits of their own.
SECONDS_MAX = 3600.0
CORES = (1, 2)
READERS = ("iterator", "one process", *(f"local[{cores}]" for cores in CORES))


class Figure(NamedTuple):
    """A figure. ``cpu``: processor seconds of the reader and of the cluster together."""

    kind: str
    reader: str
    round: int
    rows: int
    seconds: float
    cpu: float


class Measured(NamedTuple):
    """A database, and the figures of its readers."""

    revisions: int
    size: int
    figures: list[Figure]


class Bench:
    """The benchmark of one filled cluster. Drivers of Spark stay warm until the end of the block."""

    def __init__(self, cluster: Cluster, seconds: float, say: Say) -> None:
        self._cluster = cluster
        self._seconds = seconds
        self._say = say
        self._where = {
            "masters": cluster.simple.masters,
            "cluster": cluster.simple.name,
            "table": "history",
        }

    def run(self, rounds: int, folder: Path) -> Measured:
        """Run the rounds. ``folder``: the folder of logs. Raise ClientFailed."""
        revisions, size = clients.run(lambda: self._with_storage(count), SECONDS_MAX)
        self._say(f"  {revisions:,} revisions, {size / 1e6:,.0f} MB of records")
        figures = []
        with ExitStack() as stack:
            drivers = {
                f"local[{cores}]": stack.enter_context(Driver(cores, folder / f"spark{cores}.log"))
                for cores in CORES
            }
            for name, driver in drivers.items():
                self._say(f"  {name} is started and warmed up")
                for columns in KINDS.values():
                    driver.read({**self._where, "columns": columns})
            for number in range(rounds):
                for kind in KINDS:
                    for reader in READERS:
                        before = cpu.used(self._cluster.pids().values())
                        work = self._read(kind, reader, drivers.get(reader), revisions)
                        served = cpu.used(self._cluster.pids().values()) - before
                        figure = Figure(
                            kind, reader, number, work.rows, work.seconds, work.cpu + served
                        )
                        self._say(
                            f"  round {number + 1}, {kind}, {reader}:"
                            f" {work.rows / work.seconds:,.0f} rows/s"
                        )
                        figures.append(figure)
        return Measured(revisions, size, figures)

    def _read(self, kind: str, reader: str, driver: Driver | None, revisions: int) -> Work:
        if driver is not None:
            before = cpu.used([driver.pid])
            seconds = driver.read({**self._where, "columns": KINDS[kind]})
            return Work(revisions, seconds, cpu.used([driver.pid]) - before)
        function = by_iterator if reader == "iterator" else by_pages
        return clients.run(
            lambda: self._with_storage(lambda storage: function(storage, kind, self._seconds)),
            SECONDS_MAX,
        )

    def _with_storage(self, work: Callable[[object], clients.T]) -> clients.T:
        storage = self._cluster.storage(cache_size=0, read_only=True)
        try:
            return work(storage)
        finally:
            storage.close()
