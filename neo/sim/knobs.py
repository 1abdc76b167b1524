"""Constants of the product and of the simulator that differ from seed to seed.

A constant that never changes hides what depends on it: a batch that is always larger than the data, a
time-out that never passes. After FoundationDB's rule, each knob is turned for a part of the seeds, and
has its usual value for the rest. A knob is a name in one or more modules; it is set there while the run
lasts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple

from neo.sim.world import World

#: Part of the seeds in which a knob is turned.
TURNED_CHANCE = 0.25


class Knob(NamedTuple):
    """``modules``: all that have the constant, by definition or import. ``values``: unusual ones."""

    name: str
    modules: tuple[str, ...]
    values: tuple[Any, ...]


KNOBS = (
    # Sizes of what is asked, read or written together: at each border there is a second round.
    Knob("WINDOW", ("neo.client.session", "neo.client.iterator"), (1, 2, 5)),
    Knob("PAGE", ("neo.client.history",), (1, 2, 5)),
    Knob("BATCH", ("neo.client.history", "neo.client.iterator"), (1, 3)),
    Knob("BATCH_BYTES", ("neo.client.iterator",), (1, 300)),
    Knob("OIDS", ("neo.client.storage",), (1, 3)),
    Knob("DELETED_TOGETHER", ("neo.client.pack",), (1, 4)),
    Knob("UNANSWERED_MIN_BYTES", ("neo.client.storage",), (0, 200)),
    Knob("SMALLEST_COMPRESSED_BYTES", ("neo.client.records",), (0, 10**9)),
    Knob("STEP_LENGTH", ("neo.storage.maintenance",), (1, 3)),
    Knob("ABORTED_MAX", ("neo.storage.locks",), (1,)),
    # The cache.
    Knob("OVERHEAD_BYTES", ("neo.client.cache",), (0,)),
    Knob("SMALL_PART", ("neo.client.cache",), (0.01, 0.9)),
    Knob("LARGEST_PART", ("neo.client.cache",), (1.0,)),
    # Times.
    Knob("PATIENCE_SECONDS", ("neo.client.session",), (1.0, 5.0)),
    Knob("IDENTIFY_SECONDS", ("neo.client.session",), (1.0,)),
    Knob("PAUSE_SECONDS", ("neo.client.pause",), ((0.001, 0.01), (1.0, 5.0))),
    Knob("COMMIT_SECONDS", ("neo.storage.core",), (0.0, 0.05, 4.0)),
    Knob("RETRY_SECONDS", ("neo.node.bootstrap", "neo.storage.core"), (0.05,)),
    Knob("LATE_SECONDS", ("neo.net.fault_sites", "neo.storage.handler", "neo.storage.core",
                          "neo.storage.serve_client", "neo.storage.maintenance",
                          "neo.master.commits", "neo.master.running"), (0.001, 0.5)),
    # The world.
    Knob("LATENCY_SECONDS", ("neo.sim.network",), (0.00002, 0.005, 0.05)),
    Knob("HELD_SECONDS_MAX", ("neo.sim.network",), (0.5, 10.0)),
    Knob("DIAL_SECONDS", ("neo.sim.network",), (0.5,)),
    Knob("SYNC_SECONDS", ("neo.sim.disk_base",), (0.0, 0.02)),
    Knob("SWITCH_SECONDS", ("neo.sim.threads",), (0.0005,)),
    Knob("PREEMPT_SECONDS", ("neo.sim.threads",), ((0.0001, 0.05),)),
)  # fmt: skip


@contextmanager
def turned(world: World) -> Iterator[dict[str, Any]]:
    """Turn some knobs; yields name → value of these."""
    values = {
        knob.name: world.random.choice(knob.values)
        for knob in KNOBS
        if world.chance(TURNED_CHANCE)
    }
    originals = []
    for knob in KNOBS:
        if knob.name in values:
            for name in knob.modules:
                module = import_module(name)
                originals.append((module, knob.name, getattr(module, knob.name)))
                setattr(module, knob.name, values[knob.name])
    for name, value in values.items():
        world.log("knob", f"{name} = {value}")
    try:
        yield values
    finally:
        for module, name, original in originals:
            setattr(module, name, original)
