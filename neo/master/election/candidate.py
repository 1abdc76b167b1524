"""A master that has the log: it takes part in elections, and serves while it holds the lease.

A :class:`Primary` is created when this master holds the lease of its epoch, and abandoned when it loses
the lease: all connections are closed, and the next leadership gets a new object.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Protocol

from neo.master.election.election import SILENCE_SECONDS, Election
from neo.master.election.epochs import Claim, Decision, Resign
from neo.master.election.leadership import PrimaryHost, Tenure
from neo.master.election.links import ElectionMessage, MasterLink
from neo.master.election.log import MasterLog
from neo.master.election.member import LogMember
from neo.node.core import Core, Readiness
from neo.node.figures import Sample
from neo.node.handler import Handler
from neo.node.host import Host
from neo.node.peer import Peer
from neo.protocol.enums import ClusterState
from neo.protocol.ids import format_nid
from neo.protocol.packets import (
    NodeRow,
    NotifyClusterInformation,
    NotifyLease,
    NotifyLeaseGranted,
    NotifySuspicion,
)

logger = logging.getLogger("neo.master")


class Primary(Protocol):
    """A primary master, as the process of a master uses it. Created for one leadership."""

    stopped: bool

    def start(self) -> None: ...

    def flush(self) -> None: ...

    def release(self) -> None:
        """Send the output that waited for the log."""

    def abandon(self) -> None:
        """Close all connections, and drop the output."""

    def set_masters(self, rows: list[NodeRow]) -> None:
        """Update the other masters in the node table."""

    def stranger_handler(self) -> Handler: ...

    def readiness(self) -> Readiness: ...

    def samples(self) -> Iterator[Sample]: ...

    def adopt(self, peer: Peer, handler: Handler) -> None:
        """Take over a peer that connected to the process."""


MakePrimary = Callable[[Host, Tenure], Primary]


class Candidate:
    def __init__(
        self,
        core: Core,
        member: LogMember,
        log: MasterLog,
        incarnation: int,
        make_primary: MakePrimary,
    ) -> None:
        """``incarnation``: a random number of this process."""
        self.host = core.host
        self.member = member
        self.links = member.links
        self.log = log
        self.incarnation = incarnation
        self.election = Election(log.me, incarnation, log.epochs, core.host.monotonic())
        self.primary: Primary | None = None
        self.tenure: Tenure | None = None
        self._core = core
        self._make_primary = make_primary
        self._claiming = False
        #: When this master was last in a majority.
        self._decided_last = core.host.monotonic()
        #: This master will not serve any more in the current epoch.
        self._resigning = False
        self._leaving = False

    # -- lease and epochs --------------------------------------------------------------------------

    def told(self, link: MasterLink, m: ElectionMessage) -> None:
        """Handle what another master says about the election."""
        election, now = self.election, self.host.monotonic()
        if isinstance(m, NotifyLease):
            # A master that lost its log may have granted a newer epoch than it knows: it grants nothing.
            granted = None if self.log.engine.learns else election.asked(link.name, m, now)
            if granted is not None:
                link.send(granted)
        elif isinstance(m, NotifyLeaseGranted):
            election.granted(link.name, m, now)
            self.evaluate()
        else:
            election.suspected(link.name, m.epoch, now)
            self.evaluate()

    def lease_left(self, epoch: int) -> float:
        """Return the seconds for which the primary of ``epoch``, in this process, may serve."""
        if self.election.epochs.epoch != epoch or self._resigning:
            return 0.0
        return self.election.lease_left(self.log.members, self.host.monotonic())

    def decided(self, decision: Decision) -> None:
        """Handle a decision that is durable, and applied to the epochs of the log."""
        self.election.decided(decision, self.host.monotonic())
        if isinstance(decision, Claim):
            self._resigning = False
            logger.info("epoch %d: the primary master is %s", decision.epoch, decision.master)
        elif isinstance(decision, Resign):
            logger.info("the primary master %s resigned", self.election.epochs.primary)
        self.evaluate()

    def evaluate(self) -> None:
        """Act on the state of the election: begin or end a leadership, send, claim."""
        if self._core.stopped:
            return
        election, log = self.election, self.log
        now, members = self.host.monotonic(), log.members
        left = 0.0 if self._resigning else election.lease_left(members, now)
        tenure = self.tenure
        if tenure is not None and (
            left <= 0 or tenure.over or tenure.epoch != election.epochs.epoch
        ):
            lost = "its lease expired" if election.is_primary else "another master claimed the next epoch"
            self._end_tenure(lost)
        if self.tenure is None and left > 0:
            self._begin_tenure()
        ask = None if self._resigning else election.ask(self.tenure is not None, now)
        if ask is not None:
            self.links.broadcast(ask)
        if election.suspects(now):
            # The log has a failure detector of its own, whose timeout grows with each error: it should
            # suspect the primary now, too.
            log.gone(election.epochs.primary)
        if election.suspicion(now):
            self.links.broadcast(NotifySuspicion(election.epochs.epoch))
        if not self._claiming and not self._leaving and election.claim(members, now) is not None:
            self._claiming = True
            logger.info("this master claims epoch %d", election.epochs.epoch + 1)
            log.post(self._make_claim, self._claimed)

    def tick(self) -> None:
        """Report a missing majority, and update the node table of the primary."""
        self._report_minority()
        if self.primary is not None:
            self.primary.set_masters(self.member.rows())
        if self._leaving and not self.member.may_decide():
            self._core.stop(0)  # no other master can be told

    def _report_minority(self) -> None:
        """Log why there is no primary, as far as this master knows."""
        now = self.host.monotonic()
        if self.member.may_decide():
            self._decided_last = now
            return
        if now - self._decided_last < SILENCE_SECONDS:
            return
        members = self.log.members
        away = [name for name in members if (link := self.links.get(name)) and not link.up]
        report = (
            f"no majority: {', '.join(away)} not reached; {len(members) // 2 + 1} of"
            f" {len(members)} masters are needed to have a primary"
        )
        if (more := self._core.log_throttle.admit(report)) is not None:
            logger.error("%s%s", report, more)

    def _make_claim(self) -> Claim | None:
        """Return the claim to post, as long as it is wanted."""
        claim = None
        if not self._leaving:
            claim = self.election.claim(self.log.members, self.host.monotonic())
        self._claiming = claim is not None
        return claim

    def _claimed(self) -> None:
        """Evaluate again: the claim is in the log, perhaps too late."""
        self._claiming = False
        self.evaluate()

    # -- as primary --------------------------------------------------------------------------------

    def _begin_tenure(self) -> None:
        nid = self.member.nid
        assert nid is not None
        epoch = self.election.epochs.epoch
        logger.info("this master is the primary, %s, in epoch %d", format_nid(nid), epoch)
        self.tenure = Tenure(self, epoch, nid)
        host = PrimaryHost(self.host, self._primary_stopped)
        self.primary = self._make_primary(host, self.tenure)
        self.primary.set_masters(self.member.rows())
        self.primary.start()
        self.primary.flush()

    def _end_tenure(self, reason: str) -> None:
        primary, self.primary, self.tenure = self.primary, None, None
        if primary is not None:
            logger.warning("this master is not the primary any more: %s", reason)
            primary.abandon()

    def release(self) -> None:
        """Release the output of the primary: the log has its table."""
        if self.primary is not None:
            self.primary.release()

    def resign(self, successor: str, reason: str) -> None:
        """Stop serving at once, and write that to the log."""
        election = self.election
        if not election.is_primary or self._resigning:
            return
        served = election.lease is not None and election.lease.begun
        self._resigning = True
        self._end_tenure(reason)
        epoch = election.epochs.epoch

        def make() -> Resign | None:
            current = election.epochs.epoch == epoch
            return Resign(epoch, self.incarnation, served, successor) if current else None

        self.log.post(make, self._resigned)

    def _resigned(self) -> None:
        if self._leaving:
            self._core.stop(0)

    def _primary_stopped(self, code: int) -> None:
        """End the process, as the primary did: the cluster stops (exit code 0), or it has failed."""
        if not code:
            self.links.broadcast(NotifyClusterInformation(ClusterState.STOPPING))
        self._core.stop(code)

    def leave(self) -> bool:
        """Resign, if this master is primary, and end the process when the log says so."""
        if self._leaving or not self.election.is_primary:
            return False
        self._leaving = True
        self.resign("", "it was asked to end")
        return True

    def abandon(self) -> None:
        """Abandon the primary, because the process ends."""
        primary, self.primary, self.tenure = self.primary, None, None
        if primary is not None and not primary.stopped:
            primary.abandon()
