"""How large the database of this node is, and about how many objects it has: cheap, for a control panel.

The bytes are what the database itself counts. Objects are estimated: to count them would read the whole
index. Of some partitions, short runs of consecutive oids are read from the index, in distances that
grow with what was passed: the spacing of a run stands for what comes up to the next one. So the number
of reads grows with the logarithm of the number of objects. A gap, however wide, is found by its end
and approached by halves. A partition of some tens of objects is counted exactly. Objects that were
deleted count until they are packed away.
"""

from __future__ import annotations

from collections.abc import Callable

from neo.node.host import Host
from neo.protocol.ids import p64, u64
from neo.protocol.packets import AnswerSize
from neo.storage.backend.api import Backend
from neo.storage.cells import Cells

#: Oids that are read in a row.
RUN = 20
#: After each run as much is passed over as this part of what was counted until then.
PASSED = 0.5
#: Of one partition at most: ten million objects take 70. With it, many gaps make the estimate too small,
#: not the reads too many.
READS_MAX = 150
#: Of all partitions: some milliseconds on SQLite, some tens on MariaDB.
BUDGET = 300
#: So long an answer is good. It is measured on the loop's thread.
GOOD_SECONDS = 60.0


def estimate(oids_from: Callable[[int, int], list[int]], last: int) -> tuple[int, int]:
    """Return (about how many oids there are up to ``last``, reads that it took).

    ``oids_from(oid, length)``: the next ones from an oid on, ascending.
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
            distance //= 2  # there is a gap: come nearer to where it begins
    return round(count), reads


class Sizes:
    """The answers to AskSize."""

    def __init__(self, shell: Host, backend: Backend, cells: Cells) -> None:
        self._shell = shell
        self._backend = backend
        self._cells = cells
        self._answer: AnswerSize | None = None
        self._until = 0.0

    def measure(self) -> AnswerSize:
        """Return what was measured within the last minute, or measure. Raises BackendFailure."""
        now = self._shell.monotonic()
        if self._answer is None or now >= self._until:
            objects, partitions = self._count()
            cells = len(self._cells.assigned())
            self._answer = AnswerSize(self._backend.size(), cells, objects, partitions)
            self._until = now + GOOD_SECONDS
        return self._answer

    def _count(self) -> tuple[int, int]:
        """Return (objects, partitions that were looked at). Partitions have about the same number of
        objects, so that some stand for all when the budget is spent."""
        backend = self._backend
        objects = partitions = spent = 0
        for partition in self._cells.readable():
            last = backend.greatest_oid(partition)
            if last is not None:

                def oids_from(oid: int, length: int, partition: int = partition) -> list[int]:
                    return [u64(o) for o in backend.distinct_oids(partition, p64(oid), length)]

                found, reads = estimate(oids_from, u64(last))
                # A pack keeps the greatest oid of a partition, also of an object that is deleted.
                deleted = not backend.oids(partition, last, 1)
                objects, spent = objects + found - deleted, spent + reads
            partitions += 1
            if spent >= BUDGET:
                break
        return objects, partitions
