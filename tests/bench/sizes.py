"""The amount of work of a run: bounds in counts and in time."""

import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """The size of every workload.

    `seconds` bounds each rate; `whole_seconds` bounds work that counts only as a whole (an import, one
    transaction, one object). Work that a bound ends early is marked partial.
    """

    imported: int = 50_000
    objects: int = 20_000
    loads: int = 4_000
    threads: int = 8
    prefetched: int = 1_000
    commits: int = 1_000
    undos: int = 200
    undo_log: int = 20
    clients: int = 8
    commit_seconds: float = 5.0
    stored: int = 100_000
    big_mb: int = 256
    blobs: int = 1_000
    blob_kib: int = 10
    blob_batch: int = 100
    blobs_medium: int = 50
    blob_medium_mib: int = 10
    blob_huge_mib: int = 1024
    upload_mib: int = 256
    upload_seconds: float = 20.0
    echoes: int = 3_000
    syncs: int = 300
    seconds: float = 60.0
    whole_seconds: float = 900.0

    @property
    def seconds_max(self) -> float:
        """Return when a client without an answer is killed: storage calls cannot be interrupted."""
        return _killed_after(self.seconds)

    @property
    def whole_seconds_max(self) -> float:
        """Return the same for work that is bounded by `whole_seconds`."""
        return _killed_after(self.whole_seconds)


def _killed_after(seconds: float) -> float:
    """Return twice the limit, for a call that began just before it, and 30 s more. The 30 s are for
    filling the database and opening storages on a busy machine."""
    return 2 * seconds + 30


QUICK = Sizes(
    imported=100, objects=320, loads=100, threads=4, prefetched=100, commits=40, undos=10, clients=4,
    commit_seconds=0.25, stored=500, big_mb=2, blobs=20,
    blob_batch=5, blobs_medium=2, blob_medium_mib=1, blob_huge_mib=8, upload_mib=8, upload_seconds=0.5,
    echoes=200, syncs=20, seconds=5.0, whole_seconds=15.0,
)  # fmt: skip


class Limit:
    """A point in time after which a loop stops. CLOCK_MONOTONIC: shared with forked clients."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def over(self) -> bool:
        return time.monotonic() >= self._end
