"""The leadership of a primary master in one epoch: its right to serve, and its access to the log.

A :class:`~neo.master.primary.PrimaryMaster` is created for each leadership and abandoned with it. All
output of the primary passes :meth:`Tenure.may_send`, so a process that was stopped sends nothing before
it has checked the clock; and nothing leaves before the partition table that it may mention is in the
log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from neo.master.election.epochs import Operate, Table
from neo.master.election.links import MasterLinks
from neo.master.election.log import MasterLog
from neo.master.election.member import LogMember
from neo.node.host import Host
from neo.operations.entries import Entry, encode
from neo.operations.namespace import Namespace


class ElectedMaster(Protocol):
    """The master of a primary: the log, and the end of its leadership."""

    host: Host
    member: LogMember
    links: MasterLinks
    log: MasterLog
    #: A random number of the process.
    incarnation: int
    #: The current leadership of this master.
    tenure: Tenure | None

    def lease_left(self, epoch: int) -> float: ...

    def resign(self, successor: str, reason: str) -> None: ...

    def release(self) -> None:
        """Release the output of the primary: the log has its table."""


class Tenure:
    def __init__(self, node: ElectedMaster, epoch: int, nid: int) -> None:
        self.node = node
        self.epoch = epoch
        self.nid = nid
        #: The greatest table that any primary may have published, and the nodes readable in it.
        log = node.log
        self.ptid, self.nodes = log.epochs.ptid, log.epochs.nodes
        #: All new tables need a greater id.
        self.greatest = log.epochs.greatest
        #: The partition table that is being logged. All output of the primary waits until it is in the
        #: log.
        self._table: tuple[int, tuple[int, ...]] | None = None
        self._posted = False
        self.over = False

    def left(self) -> float:
        """Return the seconds for which this master may serve."""
        return 0.0 if self.over else self.node.lease_left(self.epoch)

    def may_send(self) -> bool:
        """Return whether output may leave. False is final, because output was dropped."""
        if self.left() <= 0:
            self.over = True
        return not self.over

    @property
    def waits(self) -> bool:
        """Whether a partition table of this primary is not in the log yet."""
        return self._table is not None

    def log_table(self, ptid: int, nodes: set[int]) -> None:
        """Log a partition table, in which ``nodes`` are readable, before it is published."""
        logged = self.node.log.epochs.ptid
        if logged is not None and logged >= ptid:
            return
        self._table = ptid, tuple(sorted(nodes))
        if not self._posted:
            self._posted = True
            self.node.log.post(self._make, self._logged)

    def _make(self) -> Table | None:
        if self._table is None or self.node.tenure is not self:
            return None
        ptid, nodes = self._table
        return Table(self.epoch, self.node.incarnation, ptid, nodes)

    def _logged(self) -> None:
        self._posted = False
        if self._table is None or self.node.tenure is not self:
            return
        (ptid, nodes), self._table = self._table, None
        logged = self.node.log.epochs.ptid
        if logged is None or logged < ptid:
            self.log_table(ptid, set(nodes))  # another table was requested since the post
        else:
            self.node.release()


class OperationsInLog:
    """The log of operations, which survives its primary."""

    persistent = True

    def __init__(self, tenure: Tenure) -> None:
        self._tenure = tenure
        self.number = tenure.epoch

    @property
    def namespace(self) -> Namespace:
        return self._tenure.node.log.epochs.operations

    def post(self, entry: Entry, applied: Callable[[bool], None]) -> None:
        """Post an entry until it is decided, or the leadership is over; then call ``applied``, with
        whether it changed anything."""
        tenure, data = self._tenure, encode(entry)
        node = tenure.node

        def make() -> Operate | None:
            return Operate(tenure.epoch, node.incarnation, data) if node.tenure is tenure else None

        def decided() -> None:
            if node.tenure is tenure:
                applied(node.log.epochs.operated)

        node.log.post(make, decided)


class PrimaryHost:
    """The host of a primary master: the host of the process, with another ``stop``."""

    def __init__(self, host: Host, stop: Callable[[int], None]) -> None:
        self.random = host.random
        self.meter = host.meter
        self.traces = host.traces
        self.time = host.time
        self.monotonic = host.monotonic
        self.call_later = host.call_later
        self.from_thread = host.from_thread
        self.dial = host.dial
        self.reopen_logs = host.reopen_logs
        self.fault = host.fault
        self.stop = stop
