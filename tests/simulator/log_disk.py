"""The disk under the log of a simulated master. A crash may lose what is not synced."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from neo.master.election.log import LogFailure
from neo.transactor.durable import Begun, Durable, JournalState, empty_log
from neo.transactor.members import Members
from neo.transactor.messages import Entry, Known, Record, Spec

#: Typical time of a sync.
SYNC_SECONDS = 0.002


class LogPlatter:
    """The content that survives the process. ``written`` is called for each transaction on the disk."""

    def __init__(
        self, random: Random, written: Callable[[int, Spec], None] = lambda tid, spec: None
    ) -> None:
        self.random = random
        self._written = written
        self.sync_seconds = SYNC_SECONDS
        self.full = False
        self.wipe()

    def wipe(self) -> None:
        """Replace the disk with a new, empty one."""
        self.journal = self.random.getrandbits(32) or 1
        self.begun: Begun | None = None
        self.genesis: Members
        self.entries: list[Spec] = []
        self.records: list[Record] = []
        self.tail: list[Record] = []

    def write(self, count: int) -> None:
        """Record that ``count`` of the appended records are on the disk."""
        written, self.tail = self.tail[:count], self.tail[count:]
        self._keep(written)

    def _keep(self, records: list[Record]) -> None:
        for record in records:
            if isinstance(record, Entry):
                assert record.tid == len(self.entries) + 1, "the log is contiguous"
                self.entries.append(record.spec)
                self._written(record.tid, record.spec)
            else:
                self.records.append(record)

    def crash(self) -> None:
        """Lose what was not synced, except for a random part of each of the two files."""
        entries: list[Record] = [r for r in self.tail if isinstance(r, Entry)]
        promises: list[Record] = [r for r in self.tail if not isinstance(r, Entry)]
        self.tail = []
        for file in (entries, promises):
            self._keep(file[: self.random.randrange(len(file) + 1)])

    def heal(self) -> None:
        self.sync_seconds, self.full = SYNC_SECONDS, False

    @property
    def forgetful(self) -> bool:
        """Return whether the log was lost, and the master has not learned yet what it may have
        promised."""
        durable = self.durable()
        return durable is None or durable.learner

    def durable(self) -> Durable | None:
        if self.begun is None:
            return None
        end = empty_log(self.genesis)
        for spec in self.entries:
            end = end.after(spec)
        return JournalState(self.journal, self.journal << 32, self.records).durable(self.begun, end)


class SimLogDisk:
    """Implementation of :class:`neo.master.election.log.LogDisk` for one life of a process."""

    def __init__(
        self, platter: LogPlatter, later: Callable[[float, Callable[[], None]], object]
    ) -> None:
        """``later(seconds, callback)``: the process's timer, which does nothing after its death."""
        self.platter = platter
        self._later = later
        self.journal = platter.journal
        self.durable = platter.durable()

    def begin(self, begun: Begun, genesis: Members, known: dict[int, int]) -> None:
        self._check_space()
        platter = self.platter
        platter.begun, platter.genesis = begun, genesis
        platter.records += [Known(*each) for each in known.items()]
        self.durable = platter.durable()

    def begin_with(self, genesis: Members) -> None:
        if not self.platter.entries:
            self.platter.genesis = genesis

    def append(self, records: list[Record]) -> None:
        self._check_space()
        self.platter.tail += records

    def _check_space(self) -> None:
        if self.platter.full:
            raise LogFailure("the log of the masters cannot be used: no space left on device")

    def sync(
        self, done: Callable[[], None], failed: Callable[[LogFailure], None] = lambda failure: None
    ) -> None:
        platter, count = self.platter, len(self.platter.tail)

        def synced() -> None:
            platter.write(count)
            done()

        self._later(platter.sync_seconds, synced)

    def read(self, tid: int, count: int, size: int) -> list[Spec]:
        platter = self.platter
        appended = [record.spec for record in platter.tail if isinstance(record, Entry)]
        return (platter.entries + appended)[tid - 1 : tid - 1 + count]

    def close(self) -> None:
        """End with the process: what it wrote stays in the operating system."""
        self.platter.write(len(self.platter.tail))
