"""Oracle: the logs of all masters are prefixes of one log; no master acts on what is not on its
disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from neo.master.election.epochs import Epochs, Forget
from neo.master.election.log import MasterLog
from neo.transactor.members import Members
from neo.transactor.messages import Entry, Kind, Spec
from tests.simulator.log_disk import SimLogDisk
from tests.simulator.planting import plant
from tests.simulator.world import Violation, World


class LogWatch:
    """The oracle for the masters of one cluster."""

    def __init__(self, world: World) -> None:
        self._world = world
        #: The longest log that was ever on any disk, even if it was lost since.
        self.specs: list[Spec] = []
        #: The state that this log gives.
        self.epochs = Epochs()
        #: Number of partition tables that the operator gave up.
        self.forgotten = 0
        #: Names of the members that vote; None: the masters that were configured at first.
        self.members: set[str] | None = None

    def saw(self, name: str, tid: int, spec: Spec) -> None:
        """Check a transaction that is now on the disk of a master."""
        if tid > len(self.specs):
            assert tid == len(self.specs) + 1
            self.specs.append(spec)
            if spec.kind == Kind.DATA:
                self.forgotten += isinstance(self.epochs.apply(spec.data), Forget)
            elif spec.kind == Kind.MEMBERS:
                self.members = {member.name for member in Members.decode(spec.data).all}
                self._world.log(name, f"has new members: {', '.join(sorted(self.members))}")
        elif self.specs[tid - 1] != spec:
            self._world.fail(
                Violation(f"{name} has another transaction {tid} in its log than others had")
            )


@contextmanager
def watched_logs(world: World) -> Iterator[None]:
    """Inside the block, fail the world when a master acts on log entries that a crash could lose."""
    original = MasterLog.decided

    def decided(self: MasterLog, entries: list[Entry]) -> None:
        disk = self._disk
        if isinstance(disk, SimLogDisk):
            for tid, spec in entries:
                if disk.platter.entries[tid - 1 : tid] != [spec]:
                    world.fail(
                        Violation(f"{self.me} acts on transaction {tid} before it is on its disk")
                    )
        original(self, entries)

    with plant([(MasterLog, "decided", decided)]):
        yield
