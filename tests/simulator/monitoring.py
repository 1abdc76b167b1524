"""Somebody who monitors a cluster: traces, and questions about the caches of clients.

Half of the monitored seeds trace all commits. In all of them the figures of caches are asked for through
the admin node, as a scrape of ``/metrics`` does. Oracle: what is told is of a client of this cluster,
once each, and within the bounds of its cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING
from unittest.mock import patch

from neo.protocol.packets import AnswerClientCaches, AskClientCaches, Message
from tests.simulator.console import Command
from tests.simulator.world import Violation
from tests.support.spans import Book, NodeRecorder

if TYPE_CHECKING:
    from tests.simulator.run import Run

#: Part of the seeds that are monitored, and the first seed of which some are: older ones find again what
#: they found.
MONITORED_CHANCE = 0.25
FIRST_SEED = 20_000_000
TRACED_CHANCE = 0.5
#: Seconds between two questions: the master asks a client again after five.
PAUSES_SECONDS = (0.3, 2.0, 6.0)


def _chosen(seed: int, canary: str | None) -> bool:
    if canary is not None or seed < FIRST_SEED:
        return False
    return Random(f"monitored {seed}").random() < MONITORED_CHANCE


class Monitoring:
    """``on``: whether anybody monitors, None: by the seed. Else this does nothing."""

    def __init__(self, run: Run, on: bool | None, canary: str | None) -> None:
        self._run = run
        on = _chosen(run.world.seed, canary) if on is None else on
        self._random = random = Random(f"monitoring {run.world.seed}")
        self._asks = on
        self._pause = random.choice(PAUSES_SECONDS)
        traces = on and random.random() < TRACED_CHANCE
        world = run.world
        self._book = Book(lambda: world.epoch + world.now) if traces else None
        if self._book is not None:
            run.settings["tracing"] = True
            for process in (*run.cluster.masters.all, *run.cluster.storages):
                process.tracer = NodeRecorder(self._book, process.name)

    @contextmanager
    def world(self) -> Iterator[None]:
        """Inside the block, the spans of applications are recorded here."""
        if self._book is None:
            yield
            return
        book = self._book
        with patch("neo.client.tracing.open_telemetry.open_tracer", lambda: book):
            yield

    def start(self) -> None:
        """Ask now and then, until :meth:`stop`."""
        if self._asks:
            self._run.world.call_later(self._pause, self._ask, "somebody monitors")

    def stop(self) -> None:
        self._asks = False

    def _ask(self) -> None:
        if self._asks:
            Command(self._run.cluster, AskClientCaches(), self._told)
            self.start()

    def _told(self, answer: Message | None) -> None:
        if not isinstance(answer, AnswerClientCaches):
            return  # the admin node has no primary master now
        rows, run = answer.row_list, self._run
        capacity = run.settings["cache_size"]
        names = {client.name for client in run.cluster.clients}
        problems = [
            row
            for row in rows
            if row[1] not in names or row[2] != capacity or row[3] > capacity
        ]
        if problems or len({row[0] for row in rows}) < len(rows):
            run.world.fail(Violation(f"caches of clients: {rows}, of {sorted(names)}, {capacity} bytes"))
