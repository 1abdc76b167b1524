"""A master as a member of the log: how the log begins, and the exchange with other masters about it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from neo.master.election.epochs import Decision
from neo.master.election.founding import Founding
from neo.master.election.links import Events, MasterLink, MasterLinks
from neo.master.election.log import LogDisk, LogFailure, MasterLog, genesis_of
from neo.net.sockets import format_address
from neo.node.core import Core
from neo.node.known_masters import RememberedMasters
from neo.protocol.enums import NodeState, NodeType
from neo.protocol.ids import nid_namespace
from neo.protocol.packets import Address, NodeRow, NotifyLogState
from neo.transactor.durable import Begun

logger = logging.getLogger("neo.master")

FIRST_NID = nid_namespace(NodeType.MASTER) + 1


class Owner(Events, Protocol):
    """Receives the events of a member of the log, besides those of links."""

    def opened(self, log: MasterLog) -> None:
        """Begin to use the log."""

    def decided(self, decision: Decision) -> None:
        """Handle a decision that is durable, and applied to the epochs of the log."""


class LogMember:
    """The log of a master and its links to the others. ``log`` is None until the log has begun."""

    def __init__(
        self,
        core: Core,
        owner: Owner,
        cluster: str,
        masters: Sequence[Address],
        bind: Address,
        disk: LogDisk,
        remembered: RememberedMasters,
    ) -> None:
        """``masters``: as configured. ``disk`` belongs to this object."""
        self.cluster = cluster
        self.masters = masters
        self.bind = bind
        self.me = format_address(bind)
        #: The members of the log in the last process: addresses to dial before the log is known.
        self.remembered = remembered
        self.links = MasterLinks(core, self, owner)
        self.log: MasterLog | None = None
        self._core = core
        self._owner = owner
        self._disk = disk
        self._founding: Founding | None = None
        self._waiting = ""
        self.links.want([*masters, *remembered.addresses])

    def begin(self) -> None:
        """Open the log, or begin to look for other masters to found it with. Raises LogFailure."""
        if self._disk.durable is not None:
            self._open()
        else:
            self._founding = Founding(self.bind, self.masters, self._disk.journal)

    def tick(self, now: float) -> None:
        """Drive the links."""
        addresses = self.addresses()
        self.links.want(addresses)
        self.links.tick({format_address(each) for each in (*addresses, *self.masters)}, now)
        self._report_founding()

    def _open(self) -> None:
        """Open a log that has begun."""
        self._founding = None
        warn, fail = logger.warning, self._core.fail
        self.log = MasterLog(self.me, self._disk, self._send_log, self._owner.decided, warn, fail)
        self._owner.opened(self.log)
        self.log.node.flush()

    def the_log(self) -> MasterLog:
        assert self.log is not None
        return self.log

    def reached(self, link: MasterLink) -> None:
        """Greet a master to which messages can be sent."""
        logger.info("connected to master %s", link.name)
        if self.log is not None:
            self._send_log(link.name, self.log.greeting())

    def refused(self, link: MasterLink) -> None:
        """Suspect a master that could not be dialed."""
        if self.log is not None:
            self.log.gone(link.name)

    # -- addresses and ids -------------------------------------------------------------------------

    @property
    def nid(self) -> int | None:
        """The node id that the log assigns to this master; None if it is no member."""
        return self.nid_of(self.me)

    def nid_of(self, name: str) -> int | None:
        member = self.log.engine.members.named(name) if self.log is not None else None
        return None if member is None else FIRST_NID + member.node

    def addresses(self) -> list[Address]:
        """Return the addresses of all masters, for other nodes."""
        if self.log is None:
            return list(dict.fromkeys([*self.masters, *self.remembered.addresses]))
        return [member.address for member in self.log.engine.members.all]

    def rows(self) -> list[NodeRow]:
        """Return the other masters, for the node table of a primary."""
        log = self.the_log()
        now = self._core.host.monotonic()
        rows: list[NodeRow] = []
        for member in log.engine.members.all:
            if member.name != self.me:
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

    def may_decide(self) -> bool:
        """Return whether this master and the masters that it can reach are a majority."""
        log = self.the_log()
        links = [self.links.get(name) for name in log.members]
        return len([link for link in links if link and link.up]) + 1 > len(log.members) // 2

    # -- the log -----------------------------------------------------------------------------------

    def state(self) -> NotifyLogState:
        """Return the state of the log to announce to the other masters."""
        if self._founding is not None:
            return self._founding.state()
        log = self.the_log()
        return NotifyLogState(self._disk.journal, True, log.genesis, log.journals())

    def log_state(self, link: MasterLink, m: NotifyLogState) -> None:
        before, link.state, link.current = link.state, m, True
        if self._founding is None or m == before:
            return
        said = self._founding.state()
        begun = self._founding.hear(link.address, m)
        if begun is not None:
            self._begin(begun)
        elif self._founding.state() != said:
            for other in self.links:
                other.send_state()

    def _begin(self, begun: Begun) -> None:
        assert self._founding is not None
        genesis = genesis_of(self.masters)
        known: dict[int, int] = {}
        if begun is Begun.FRESH:
            for address, journal in self._founding.state().journal_list:
                member = genesis.named(format_address(address))
                if member is not None and address != self.bind:
                    known[member.node] = journal
            logger.info("all masters are present: their log begins")
        else:
            logger.warning("this master learns the log of the others before it votes")
        try:
            self._disk.begin(begun, genesis, known)
            self._open()
        except LogFailure as e:
            self._core.fail(e)
            return
        for link in self.links:
            link.send_state()

    def _send_log(self, master: str, packets: list[bytes]) -> None:
        link = self.links.get(master)
        if link is not None:
            link.send_log(packets)

    def log_messages(self, link: MasterLink, packets: list[bytes]) -> None:
        """Handle messages of the log. Raises ValueError if they are malformed."""
        if self.log is None or link.state is None or not link.state.begun:
            return
        ours, theirs = self.log.genesis, link.state.genesis
        if ours and theirs and ours != theirs:
            report = (
                f"the log of master {link.name} was begun with other masters than this one's: set aside"
                " the log of the one that is wrong, and start it again"
            )
            if (more := self._core.log_throttle.admit(report)) is not None:
                logger.error("%s%s", report, more)
            return
        self.log.receive(link.name, packets)

    def _report_founding(self) -> None:
        if self._founding is None:
            return
        absent = ", ".join(map(format_address, self._founding.waits_for()))
        waiting = f"the log of the masters begins when all are present: {absent} missing"
        if self._founding.outside:
            absent = waiting = "the other masters have a log without this one, which waits for neoctl add"
        if absent and waiting != self._waiting:
            logger.info("%s", waiting)
        self._waiting = waiting

    def close(self) -> None:
        """Stop writing, and release the disk."""
        if self.log is not None:
            self.log.close()
        try:
            self._disk.close()
        except LogFailure as e:
            logger.error("%s", e)
