"""The disk under the log of a simulated master: what is not synced may be lost in a crash."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from neo.transactor.durable import Begun, Durable, LogEnd, empty_log, restore
from neo.transactor.members import Members
from neo.transactor.messages import Entry, Kind, Known, Record, Spec

#: Of one sync.
SYNC_SECONDS = 0.002


class LogPlatter:
    """What survives the process."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.sync_seconds = SYNC_SECONDS
        self.journal = random.getrandbits(32) or 1
        self.begun: Begun | None = None
        self.genesis: Members
        self.entries: list[Spec] = []
        self.records: list[Record] = []
        self.tail: list[Record] = []

    def write(self, count: int) -> None:
        """So many of the records that were appended are on the disk."""
        for record in self.tail[:count]:
            if isinstance(record, Entry):
                assert record.tid == len(self.entries) + 1, "the log is contiguous"
                self.entries.append(record.spec)
            else:
                self.records.append(record)
        del self.tail[:count]

    def crash(self) -> None:
        """Of what was not synced, a part is there by luck."""
        self.write(self.random.randrange(len(self.tail) + 1))
        self.tail.clear()

    def wipe(self) -> None:
        """A new, empty disk."""
        self.__init__(self.random)  # type: ignore[misc]

    def durable(self) -> Durable | None:
        if self.begun is None:
            return None
        end = empty_log(self.genesis)
        members, former = self.genesis, self.genesis.nodes
        for tid, spec in enumerate(self.entries, 1):
            former = members.nodes
            if spec.kind == Kind.MEMBERS:
                members = Members.decode(spec.data)
            end = LogEnd(tid + 1, spec.sid, self.genesis, members, former)
        return restore(self.journal, self.begun, self.journal << 32, end, self.records)


class SimLogDisk:
    """Implements :class:`neo.master.log.LogDisk` for one life of a process."""

    def __init__(
        self, platter: LogPlatter, later: Callable[[float, Callable[[], None]], object]
    ) -> None:
        """``later(seconds, callback)``: of the process, nothing after its death."""
        self._platter = platter
        self._later = later
        self.journal = platter.journal
        self.durable = platter.durable()

    def begin(self, begun: Begun, genesis: Members, known: dict[int, int]) -> None:
        platter = self._platter
        platter.begun, platter.genesis = begun, genesis
        platter.records += [Known(*each) for each in known.items()]
        self.durable = platter.durable()

    def begin_with(self, genesis: Members) -> None:
        if not self._platter.entries:
            self._platter.genesis = genesis

    def append(self, records: list[Record]) -> None:
        self._platter.tail += records

    def sync(self, done: Callable[[], None]) -> None:
        count = len(self._platter.tail)

        def synced() -> None:
            self._platter.write(count)
            done()

        self._later(self._platter.sync_seconds, synced)

    def read(self, tid: int, count: int, size: int) -> list[Spec]:
        platter = self._platter
        appended = [record.spec for record in platter.tail if isinstance(record, Entry)]
        return (platter.entries + appended)[tid - 1 : tid - 1 + count]

    def close(self) -> None:
        pass
