"""Constants of the product and of the simulator that differ from seed to seed.

A constant that never changes hides what depends on it: a batch that is always larger than the data, a
timeout that never passes. As in FoundationDB, each knob is turned for a part of the seeds, and has its
usual value for the rest. A knob is a name in the modules of a package that define or import the
constant; it is set there during the run.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from random import Random
from types import ModuleType
from typing import Any, NamedTuple

import neo.client  # noqa: F401  # its modules have knobs
from tests.simulator.world import World

#: Part of the seeds in which a knob is turned.
TURNED_CHANCE = 0.25
#: The greatest usual latency of links, for which the time limits of runs are chosen.
USUAL_LATENCY_SECONDS = 0.002
#: How many times slower a client with WINDOW 1 reads many objects. Forty threads that write with short
#: pauses commit more than the garbage collection of such a client can read.
ONE_BY_ONE = 20.0


class Knob(NamedTuple):
    """``package``: the package whose modules have the constant. ``values``: unusual values."""

    name: str
    package: str
    values: tuple[Any, ...]

    def modules(self) -> list[ModuleType]:
        """Return all modules that have the constant. Raise AssertionError if it was renamed."""
        modules = [
            module
            for name, module in sorted(sys.modules.items())
            if name.startswith(self.package) and hasattr(module, self.name)
        ]
        assert modules, f"no module of {self.package} has {self.name}"
        return modules


KNOBS = (
    # Sizes of batches: a small batch needs several rounds.
    Knob("WINDOW", "neo.client", (1, 2, 5)),
    Knob("PAGE", "neo.client", (1, 2, 5)),
    Knob("BATCH", "neo.client", (1, 3)),
    Knob("BATCH_BYTES", "neo.client", (1, 300)),
    Knob("OIDS", "neo.client", (1, 3)),
    Knob("DELETED_TOGETHER", "neo.client", (4, 20)),
    Knob("UNANSWERED_MIN_BYTES", "neo.client", (0, 200)),
    Knob("SMALLEST_COMPRESSED_BYTES", "neo.client", (0, 10**9)),
    Knob("STEP_LENGTH", "neo.storage", (1, 3)),
    Knob("ABORTED_MAX", "neo.storage", (1,)),
    # The cache.
    Knob("OVERHEAD_BYTES", "neo.client", (0,)),
    Knob("SMALL_PART", "neo.client", (0.01, 0.9)),
    Knob("LARGEST_PART", "neo.client", (1.0,)),
    # Times.
    Knob("PATIENCE_SECONDS", "neo.client", (1.0, 5.0)),
    Knob("IDENTIFY_SECONDS", "neo.client", (1.0,)),
    Knob("PAUSE_SECONDS", "neo.client", ((0.001, 0.01), (1.0, 5.0))),
    Knob("COMMIT_SECONDS", "neo.storage", (0.0, 0.05, 4.0)),
    Knob("RETRY_SECONDS", "neo", (0.05,)),
    Knob("LATE_SECONDS", "neo", (0.001, 0.5)),
    # The world.
    Knob("LATENCY_SECONDS", "tests.simulator", (0.00002, 0.003, 0.02)),
    Knob("HELD_SECONDS_MAX", "tests.simulator", (0.5, 10.0)),
    Knob("DIAL_SECONDS", "tests.simulator", (0.5,)),
    Knob("SYNC_SECONDS", "tests.simulator", (0.0, 0.02)),
    Knob("SWITCH_SECONDS", "tests.simulator", (0.0005,)),
    Knob("PREEMPT_SECONDS", "tests.simulator", ((0.0001, 0.05),)),
)

#: Knobs with a separate generator, so that older seeds find again what they found before these knobs.
LATER_KNOBS = (
    # Replication and checks: sizes of pieces of cells, of answers, and of work while clients wait.
    Knob("LENGTH", "neo.storage", (1, 7)),
    Knob("CHUNK_BYTES", "neo.storage", (1, 300)),
    Knob("BUFFER_BYTES", "neo.storage", (0, 200)),
    Knob("STEP_BYTES", "neo.storage", (1, 300)),
    Knob("BUSY_SECONDS", "neo.storage", (0.0, 1.0)),
    Knob("PAUSE_SECONDS_MAX", "neo.storage", (0.01,)),
    Knob("PAUSE_SECONDS_MIN", "neo.storage", (0.0,)),
    # Pages of clients that read everything; statements of the SQL backends.
    Knob("ROWS_MAX", "neo.storage", (1, 3)),
    Knob("IDS_PER_STATEMENT", "neo.storage.backend", (1, 3)),
    # Times of servers.
    Knob("ANSWER_SECONDS", "neo", (3.0,)),
    Knob("ORDER_SECONDS", "neo.master", (3.0,)),
    Knob("STOP_SECONDS", "neo.master", (0.0, 0.5)),
    Knob("UNFIT_SECONDS", "neo.master", (0.5,)),
    # Flow control: what a peer may leave unread, and how much of its messages a turn executes.
    Knob("SLOW_BYTES", "neo.node", (1, 400)),
    Knob("PEER_BYTES", "neo.node", (1, 2000)),
    Knob("TURN_BYTES", "neo.node", (1, 300)),
    Knob("JOBS_BYTES", "neo.node", (1,)),
    # Nodes of one process: what else happens between two messages.
    Knob("TURN_DELIVERIES", "neo.node", (1,)),
)


@contextmanager
def turned(world: World, names: Collection[str] | None = None) -> Iterator[dict[str, Any]]:
    """Turn some knobs and yield their names and values. ``names``: the knobs that may be turned."""
    values = {
        knob.name: world.random.choice(knob.values) for knob in KNOBS if world.chance(TURNED_CHANCE)
    }
    random = Random(f"knobs {world.seed}")
    values |= {
        knob.name: random.choice(knob.values)
        for knob in LATER_KNOBS
        if random.random() < TURNED_CHANCE
    }
    if names is not None:
        # Filtered only after the choice, so that later choices stay the same.
        values = {name: value for name, value in values.items() if name in names}
    originals = []
    for knob in (*KNOBS, *LATER_KNOBS):
        if knob.name in values:
            for module in knob.modules():
                originals.append((module, knob.name, getattr(module, knob.name)))
                setattr(module, knob.name, values[knob.name])
    for name, value in values.items():
        world.log("knob", f"{name} = {value}")
    world.slowness = max(1.0, values.get("LATENCY_SECONDS", 0.0) / USUAL_LATENCY_SECONDS)
    world.slow_readers = ONE_BY_ONE if values.get("WINDOW") == 1 else 1.0
    try:
        yield values
    finally:
        for module, name, original in originals:
            setattr(module, name, original)
