"""Bugs of caches that are kept in a folder."""

from __future__ import annotations

from collections.abc import Sequence

from neo.client.read.cache import Cache, Record
from neo.client.read.replicas import Replicas
from neo.client.warm import keeper
from neo.client.warm.snapshot import Anchor, UnusableError
from neo.client.warm.validation import Changes, changes_since
from neo.protocol.ids import ZERO_TID
from tests.simulator.planting import Canary, Patch

_OPTIONS = {
    "faults": ("kill-client",),
    "workloads": ("bank", "counters"),
    "disk": "memory",
    "seconds": 5.0,
    "kept": True,
}


def _no_sample(replicas: Replicas, records: Sequence[Record], last_tid: bytes) -> None:
    """Find nothing wrong."""


def _believed() -> list[Patch]:
    def believe(replicas: Replicas, anchor: Anchor, last_tid: bytes) -> Changes:
        return Changes(set(), ZERO_TID, [])

    return [(keeper, "changes_since", believe), (keeper, "check_sample", _no_sample)]


def _last_one_skipped() -> list[Patch]:
    def skip(replicas: Replicas, anchor: Anchor, last_tid: bytes) -> Changes:
        found = changes_since(replicas, anchor, last_tid)
        return found._replace(oids=found.oids - set(found.last_oids))

    return [(keeper, "changes_since", skip), (keeper, "check_sample", _no_sample)]


def _truncation_not_noticed() -> list[Patch]:
    def ignore(replicas: Replicas, anchor: Anchor, last_tid: bytes) -> Changes:
        try:
            return changes_since(replicas, anchor, last_tid)
        except UnusableError:
            return Changes(set(), ZERO_TID, [])

    return [(keeper, "changes_since", ignore), (keeper, "check_sample", _no_sample)]


def _invalidations_meanwhile_lost() -> list[Patch]:
    original = Cache.restore

    def restore(self: Cache, records: Sequence[Record]) -> int:
        self._since = set()
        return original(self, records)

    return [(Cache, "restore", restore)]


CANARIES = (
    Canary(
        "kept-cache-believed",
        "a kept cache is used as it is",
        "reads: what was committed since is missing",
        _believed,
        20,
        _OPTIONS,
    ),
    Canary(
        "kept-last-one-skipped",
        "what the last transaction changed is not dropped from a kept cache",
        "reads: the last transaction before the restart is missing",
        _last_one_skipped,
        20,
        _OPTIONS,
    ),
    Canary(
        "kept-truncation-not-noticed",
        "a kept cache of a truncated database is used",
        "reads: a transaction that does not exist any more",
        _truncation_not_noticed,
        20,
        _OPTIONS
        | {
            "faults": ("kill-client", "operate"),
            "workloads": ("bank", "records"),
            "seconds": 10.0,
        },
        first=370,
    ),
    Canary(
        "kept-restored-without-invalidations",
        "invalidations during the comparison with the cluster do not concern a kept cache",
        "reads: a transaction that was committed meanwhile is missing",
        _invalidations_meanwhile_lost,
        60,
        _OPTIONS,
    ),
)
