"""A master among several: keeps the log with the others, and is their primary for an epoch or more.

This core lives as long as the process. A :class:`Primary` is created when this master holds the lease
of its epoch, and abandoned when it loses the lease: all connections are closed, and the next leadership
gets a new object. With one configured master this module is not used: the core of the process is a
primary master.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from neo.master.election.election import SILENCE_SECONDS, Election
from neo.master.election.epochs import Claim, Decision, Resign, encode
from neo.master.election.leadership import Tenure, TenureHost
from neo.master.election.links import MasterLink, MasterLinks
from neo.master.election.log import TICK_SECONDS, LogDisk, MasterLog
from neo.master.election.member import FIRST_NID, LogMember
from neo.net.sockets import format_address
from neo.node.core import Core
from neo.node.handler import Handler, on
from neo.node.host import Host
from neo.node.known_masters import RememberedMasters
from neo.node.peer import Peer
from neo.protocol.enums import ClusterState, ErrorCode, NodeState, NodeType
from neo.protocol.ids import format_nid
from neo.protocol.packets import (
    Address,
    Message,
    NodeRow,
    NotifyClusterInformation,
    NotifyLease,
    NotifyLeaseGranted,
    NotifySuspicion,
    NotPrimaryMaster,
    RequestIdentification,
)
from neo.transactor.messages import Kind

logger = logging.getLogger("neo.master")

#: Time for the log to accept the resignation of a master that is asked to end.
RESIGN_SECONDS = 1.5


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

    def adopt(self, peer: Peer, handler: Handler) -> None:
        """Take over a peer that connected to the process."""


MakePrimary = Callable[[Host, Tenure], Primary]


class Strangers(Handler):
    """Handler of peers that have not identified themselves."""

    def __init__(self, node: MasterNode) -> None:
        self._node = node

    @on(RequestIdentification)
    def identify(
        self, peer: Peer, message_id: int, request: RequestIdentification
    ) -> Message | None:
        node = self._node
        cluster = node.member.cluster
        if request.name != cluster:
            text = f"invalid cluster name: this is {cluster!r}, you asked for {request.name!r}"
            logger.warning("%r may not join: %s", peer, text)
            peer.refuse(message_id, ErrorCode.PROTOCOL_ERROR, text)
            peer.close()
        elif request.node_type is NodeType.MASTER:
            node.links.accept(peer, message_id, request)
        elif node.primary is not None:
            handler = node.primary.stranger_handler()
            node.primary.adopt(peer, handler)
            method = handler.method(RequestIdentification)
            assert method is not None
            return method(peer, message_id, request)
        else:
            peer.send(node.not_primary())
            peer.close()
        return None


class MasterNode(Core):
    def __init__(
        self,
        shell: Host,
        cluster: str,
        masters: Sequence[Address],
        bind: Address,
        disk: LogDisk,
        make_primary: MakePrimary,
        remembered: RememberedMasters | None = None,
    ) -> None:
        """``masters``: as configured. ``disk`` belongs to this core. Raises LogFailure."""
        super().__init__(shell)
        self.incarnation: int = shell.random.getrandbits(62)
        self.election: Election | None = None
        self.primary: Primary | None = None
        self.tenure: Tenure | None = None
        self._make_primary = make_primary
        self._claiming = False
        #: When this master was last in a majority.
        self._decided_last = shell.monotonic()
        #: This master will not serve any more in the current epoch.
        self._resigning = False
        self._leaving = False
        remembered = remembered or RememberedMasters(None)
        self.member = LogMember(self, self, cluster, masters, bind, disk, remembered)

    def start(self) -> None:
        super().start()
        self._tick()

    @property
    def links(self) -> MasterLinks:
        return self.member.links

    @property
    def log(self) -> MasterLog | None:
        return self.member.log

    def the_log(self) -> MasterLog:
        return self.member.the_log()

    def opened(self, log: MasterLog) -> None:
        self.election = Election(log.me, self.incarnation, log.epochs, self.shell.monotonic())

    # -- other masters -----------------------------------------------------------------------------

    def stranger_handler(self) -> Handler:
        return Strangers(self)

    def not_primary(self) -> NotPrimaryMaster:
        """Return the address of the primary, if it is known, for a peer that is not served here."""
        addresses = self.member.addresses()
        if self.member.bind not in addresses:
            addresses.append(self.member.bind)
        now = self.shell.monotonic()
        if self.log is not None and not self.log.epochs.resigned:
            link = self.links.get(self.log.epochs.primary)
            suspected = self.election is not None and self.election.suspects(now)
            known = link is not None and link.alive(now) and not suspected
            if known and link is not None and link.address in addresses:
                return NotPrimaryMaster(addresses.index(link.address), addresses)
        return NotPrimaryMaster(None, addresses)

    def reached(self, link: MasterLink) -> None:
        if self.election is not None:
            self.election.reached(link.name)
        self.member.reached(link)

    def refused(self, link: MasterLink) -> None:
        if self.election is not None:
            self.election.refused(link.name, self.shell.monotonic())
        self.member.refused(link)

    def cluster_state(self, link: MasterLink, state: ClusterState) -> None:
        """The primary says that the cluster stops."""
        if state is ClusterState.STOPPING:
            logger.info("the cluster stops: told by master %s", link.name)
            self.stop(0)

    def told_nodes(self, link: MasterLink, rows: list[NodeRow]) -> None:
        """The primary tells this master to end, by order of the operator."""
        if any(row[1] == self.member.bind and row[3] is NodeState.DOWN for row in rows):
            logger.info("this master ends: told by master %s", link.name)
            self.stop(0)

    # -- lease and epochs --------------------------------------------------------------------------

    def lease_asked(self, link: MasterLink, m: NotifyLease) -> None:
        # A master that lost its log may have granted a newer epoch than it knows: it grants nothing.
        if self.election is not None and not self.the_log().engine.learns:
            granted = self.election.asked(link.name, m, self.shell.monotonic())
            if granted is not None:
                link.send(granted)

    def lease_granted(self, link: MasterLink, m: NotifyLeaseGranted) -> None:
        if self.election is not None:
            self.election.granted(link.name, m, self.shell.monotonic())
            self._evaluate()

    def suspected(self, link: MasterLink, epoch: int) -> None:
        if self.election is not None:
            self.election.suspected(link.name, epoch, self.shell.monotonic())
            self._evaluate()

    def lease_left(self, epoch: int) -> float:
        """Return the seconds for which the primary of ``epoch``, in this process, may serve."""
        if self.election is None or self.election.epochs.epoch != epoch or self._resigning:
            return 0.0
        return self.election.lease_left(self.the_log().members, self.shell.monotonic())

    def decided(self, decision: Decision) -> None:
        assert self.election is not None
        self.election.decided(decision, self.shell.monotonic())
        if isinstance(decision, Claim):
            self._resigning = False
            logger.info("epoch %d: the primary master is %s", decision.epoch, decision.master)
        elif isinstance(decision, Resign):
            logger.info("the primary master %s resigned", self.election.epochs.primary)
        self._evaluate()

    def _tick(self) -> None:
        now = self.shell.monotonic()
        if self.log is not None:
            self.log.tick()
            self.member.remembered.save(self.member.addresses())
        wanted = {format_address(address) for address in self.member.addresses()}
        wanted.update(map(format_address, self.member.masters))
        self.links.want(self.member.addresses())
        self.links.tick(wanted, now)
        self._evaluate()
        self.member.report_founding()
        self._report_minority()
        if self.primary is not None:
            self.primary.set_masters(self.rows())
        if self._leaving and not self._may_decide():
            self.stop(0)  # no other master can be told
        if not self.stopped:
            self.call_later(TICK_SECONDS, self._tick)

    def _evaluate(self) -> None:
        """Act on the state of the election: begin or end a leadership, send, claim."""
        election, log = self.election, self.log
        if election is None or log is None or self.stopped:
            return
        now, members = self.shell.monotonic(), log.members
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
            # Tell the failure detector of the log, too; its own timeout grows with each error.
            log.gone(election.epochs.primary)
        if election.suspicion(now):
            self.links.broadcast(NotifySuspicion(election.epochs.epoch))
        if not self._claiming and not self._leaving and election.claim(members, now) is not None:
            self._claiming = True
            logger.info("this master claims epoch %d", election.epochs.epoch + 1)
            log.post(self._make_claim, self._claimed)

    def _report_minority(self) -> None:
        """Log why there is no primary, as far as this master knows."""
        now = self.shell.monotonic()
        if self.log is None or self._may_decide():
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
        if (more := self.noise.admit(report)) is not None:
            logger.error("%s%s", report, more)

    def _may_decide(self) -> bool:
        """Return whether this master and those that it reaches are a majority."""
        log = self.the_log()
        links = [self.links.get(name) for name in log.members]
        return len([link for link in links if link and link.up]) + 1 > len(log.members) // 2

    def _make_claim(self) -> tuple[int, bytes] | None:
        """Return the claim to post, as long as it is wanted."""
        assert self.election is not None
        claim = None
        if not self._leaving:
            claim = self.election.claim(self.the_log().members, self.shell.monotonic())
        self._claiming = claim is not None
        return None if claim is None else (Kind.DATA, encode(claim))

    def _claimed(self) -> None:
        """The claim is in the log; it may have come too late."""
        self._claiming = False
        self._evaluate()

    # -- as primary --------------------------------------------------------------------------------

    def _begin_tenure(self) -> None:
        assert self.election is not None and self.member.nid is not None
        epoch = self.election.epochs.epoch
        logger.info("this master is the primary, %s, in epoch %d", format_nid(self.member.nid), epoch)
        self.tenure = Tenure(self, epoch, self.member.nid)
        self.primary = self._make_primary(TenureHost(self), self.tenure)
        self.primary.set_masters(self.rows())
        self.primary.start()
        self.primary.flush()

    def _end_tenure(self, reason: str) -> None:
        primary, self.primary, self.tenure = self.primary, None, None
        if primary is not None:
            logger.warning("this master is not the primary any more: %s", reason)
            primary.abandon()

    def release(self) -> None:
        """The log has the table that the primary waits for."""
        if self.primary is not None:
            self.primary.release()

    def rows(self) -> list[NodeRow]:
        """Return the other masters, for the node table of the primary."""
        log = self.the_log()
        now = self.shell.monotonic()
        rows: list[NodeRow] = []
        for member in log.engine.members.all:
            if member.name != self.member.me:
                link = self.links.get(member.name)
                state = NodeState.RUNNING if link and link.alive(now) else NodeState.DOWN
                nid = FIRST_NID + member.node
                rows.append((NodeType.MASTER, member.address, nid, state, None))
        nid = FIRST_NID + log.engine.members.next_index
        for link in self.links:
            if link.alive(now) and log.engine.members.named(link.name) is None:
                rows.append((NodeType.MASTER, link.address, nid, NodeState.PENDING, None))
                nid += 1
        return rows

    def resign(self, successor: str, reason: str) -> None:
        """Stop serving at once, and write that to the log."""
        election = self.election
        if election is None or not election.is_primary or self._resigning:
            return
        served = election.lease is not None and election.lease.begun
        self._resigning = True
        self._end_tenure(reason)
        epoch = election.epochs.epoch

        def make() -> tuple[int, bytes] | None:
            if election.epochs.epoch != epoch:
                return None
            return Kind.DATA, encode(Resign(epoch, self.incarnation, served, successor))

        self.the_log().post(make, self._resigned)

    def _resigned(self) -> None:
        if self._leaving:
            self.stop(0)

    def primary_stopped(self, code: int) -> None:
        """The primary ended by itself: the cluster stops (exit code 0), or an internal error occurred."""
        if not code:
            self.links.broadcast(NotifyClusterInformation(ClusterState.STOPPING))
        self.stop(code)

    # -- termination -------------------------------------------------------------------------------

    def terminate(self) -> None:
        """Handle SIGTERM: resign, so that the other masters need not wait for the lease."""
        if self._leaving or self.election is None or not self.election.is_primary:
            self.stop(0)
            return
        self._leaving = True
        self.resign("", "it was asked to end")
        self.call_later(RESIGN_SECONDS, lambda: self.stop(0))

    def flush(self) -> None:
        super().flush()
        if self.primary is not None:
            self.primary.flush()

    def stop(self, code: int) -> None:
        if self.stopped:
            return
        primary, self.primary, self.tenure = self.primary, None, None
        if primary is not None and not primary.stopped:
            primary.abandon()
        super().stop(code)
        self.member.close()
