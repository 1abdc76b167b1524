"""Bugs of the scrub."""

from __future__ import annotations

from functools import partial

from neo.master.maintenance.check import Checks, Row
from neo.master.maintenance.scrub import Scrub
from tests.simulator.planting import Canary, Patch

_OPTIONS = {
    "faults": ("none",),
    "disk": "memory",
    "storages": 3,
    "replicas": 1,
    "seconds": 2.0,
    "scrub": 12.0,
}


def _always_the_first() -> list[Patch]:
    def tick(self: Scrub) -> None:
        self._plan()
        slot = int(self._host.time() // self._slot_seconds())
        if slot != self._slot and self._free():
            self._slot = slot
            self._checks.scrub(0, partial(self._ended, 0))

    return [(Scrub, "_tick", tick)]


def _not_reported() -> list[Patch]:
    def keep(self: Checks, partition: int, row: Row) -> None:
        pass

    return [(Checks, "_keep", keep)]


CANARIES = (
    Canary(
        "scrub-of-one-partition",
        "the scrub always compares the first partition",
        "drills: a damaged replica is not found within a period",
        _always_the_first,
        10,
        _OPTIONS,
    ),
    Canary(
        "scrub-not-reported",
        "what the scrub finds is not in the report of checks",
        "drills: a damaged replica is not found within a period",
        _not_reported,
        10,
        _OPTIONS,
    ),
)
