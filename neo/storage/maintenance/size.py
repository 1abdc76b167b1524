"""Size of this node's database, and an estimate of its number of objects, for a control panel.

The database itself counts its bytes. Objects are estimated, because counting them would read the whole
index. Short runs of consecutive oids are read from the index, at distances that grow with the number of
objects before: the spacing in a run is taken for the objects up to the next run. So the number of reads
grows with the logarithm of the number of objects. A gap of any width is detected by its end and
approached by halving. A partition with some tens of objects is counted exactly. Deleted objects count
until they are packed away.
"""

from __future__ import annotations

from collections.abc import Callable

from neo.node.host import Host
from neo.protocol.ids import p64, u64
from neo.protocol.packets import AnswerSize
from neo.storage.backend.api import Backend
from neo.storage.cells import Cells

#: Oids of a run.
RUN = 20
#: After each run, this fraction of the objects counted so far is skipped.
PASSED = 0.5
#: Reads of one partition; ten million objects take 70. With many gaps, the estimate is too small.
READS_MAX = 150
#: Reads of all partitions: some milliseconds on SQLite, some tens on MariaDB.
BUDGET = 300
#: Time for which an answer is reused, because measuring blocks the event loop.
GOOD_SECONDS = 60.0


def estimate(oids_from: Callable[[int, int], list[int]], last: int) -> tuple[int, int]:
    """Return (estimated number of oids up to ``last``, number of reads).

    ``oids_from(oid, length)`` returns the next oids from an oid on, ascending.
    """
    count = 0.0
    position = reads = 0
    while reads < READS_MAX:
        found = oids_from(position, RUN)
        reads += 1
        count += len(found)
        if len(found) < RUN or found[-1] >= last:
            break
        spacing = (found[-1] - found[0]) / (RUN - 1)
        position = found[-1] + 1
        distance = min(int(PASSED * count * spacing), last - found[-1])
        while distance >= RUN * spacing:
            following = oids_from(position + distance, 1)
            reads += 1
            if not following or following[0] - position - distance <= RUN * spacing:
                count += distance / spacing
                position += distance
                break
            distance //= 2  # a gap: approach its begin
    return round(count), reads


class Sizes:
    """Computes the answers to AskSize."""

    def __init__(self, host: Host, backend: Backend, cells: Cells) -> None:
        self._host = host
        self._backend = backend
        self._cells = cells
        self._answer: AnswerSize | None = None
        self._until = 0.0

    def measure(self) -> AnswerSize:
        """Return the last answer for GOOD_SECONDS, then measure again. Raises BackendFailure."""
        now = self._host.monotonic()
        if self._answer is None or now >= self._until:
            objects, partitions = self._count()
            cells = len(self._cells.assigned())
            self._answer = AnswerSize(self._backend.engine.size(), cells, objects, partitions)
            self._until = now + GOOD_SECONDS
        return self._answer

    def _count(self) -> tuple[int, int]:
        """Return (objects, measured partitions). Partitions have about equal numbers of objects, so that
        some represent all when the budget is spent."""
        backend = self._backend
        objects = partitions = spent = 0
        for partition in self._cells.readable():
            last = backend.reads.greatest_oid(partition)
            if last is not None:

                def oids_from(oid: int, length: int, partition: int = partition) -> list[int]:
                    return [u64(o) for o in backend.reads.distinct_oids(partition, p64(oid), length)]

                found, reads = estimate(oids_from, u64(last))
                # A pack keeps the greatest oid of a partition, even if its object is deleted.
                deleted = not backend.reads.oids(partition, last, 1)
                objects, spent = objects + found - deleted, spent + reads
            partitions += 1
            if spent >= BUDGET:
                break
        return objects, partitions
