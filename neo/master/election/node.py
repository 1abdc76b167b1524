"""The process of a master among several: a member of the log, and a candidate once it has the log.

With one configured master this module is not used: the core of the process is a primary master.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from neo.master.election.candidate import Candidate, MakePrimary, Primary
from neo.master.election.epochs import Decision
from neo.master.election.links import ElectionMessage, MasterLink
from neo.master.election.log import TICK_SECONDS, LogDisk, MasterLog
from neo.master.election.member import LogMember
from neo.master.figures import PRIMARY
from neo.node.core import Core, Readiness
from neo.node.figures import Sample, build
from neo.node.handler import Handler, on
from neo.node.host import Host
from neo.node.known_masters import RememberedMasters
from neo.node.peer import Peer
from neo.protocol.enums import ErrorCode, NodeType
from neo.protocol.packets import Address, Message, NotPrimaryMaster, RequestIdentification

logger = logging.getLogger("neo.master")

#: Time for the log to accept the resignation of a master that is asked to end.
RESIGN_SECONDS = 1.5


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
            node.member.links.accept(peer, message_id, request)
        elif node.primary is not None:
            handler = node.primary.stranger_handler()
            node.primary.adopt(peer, handler)
            return handler.table[RequestIdentification](peer, message_id, request)
        else:
            peer.send(node.not_primary())
            peer.close()
        return None


class MasterNode(Core):
    def __init__(
        self,
        host: Host,
        cluster: str,
        masters: Sequence[Address],
        bind: Address,
        disk: LogDisk,
        make_primary: MakePrimary,
        remembered: RememberedMasters | None = None,
    ) -> None:
        """``masters``: as configured. ``disk`` belongs to this core. Raises LogFailure."""
        super().__init__(host)
        self._incarnation: int = host.random.getrandbits(62)
        self._make_primary = make_primary
        #: None until the log has begun.
        self.candidate: Candidate | None = None
        remembered = remembered or RememberedMasters(None)
        self.member = LogMember(self, self, cluster, masters, bind, disk, remembered)
        self.member.begin()

    def start(self) -> None:
        super().start()
        self._tick()

    @property
    def primary(self) -> Primary | None:
        return None if self.candidate is None else self.candidate.primary

    def stranger_handler(self) -> Handler:
        return Strangers(self)

    def not_primary(self) -> NotPrimaryMaster:
        """Return the address of the primary, if it is known, for a peer that is not served here."""
        addresses = self.member.addresses()
        if self.member.bind not in addresses:
            addresses.append(self.member.bind)
        now, candidate = self.host.monotonic(), self.candidate
        if candidate is not None and not candidate.log.epochs.resigned:
            link = self.member.links.get(candidate.log.epochs.primary)
            known = link is not None and link.alive(now) and not candidate.election.suspects(now)
            if known and link is not None and link.address in addresses:
                return NotPrimaryMaster(addresses.index(link.address), addresses)
        return NotPrimaryMaster(None, addresses)

    # -- for monitoring ----------------------------------------------------------------------------

    def readiness(self) -> Readiness:
        """A master that is not the primary does its part if it knows the primary."""
        if self.primary is not None:
            return self.primary.readiness()
        known = self.not_primary().primary is not None
        text = "this master follows another one" if known else "no primary master is known"
        return Readiness(known, text)

    def samples(self) -> Iterator[Sample]:
        """Return the figures of the primary if it is here; others connect to that only."""
        if self.primary is not None:
            yield from self.primary.samples()
        else:
            yield build(self.member.cluster, "master")
            yield from super().samples()
            yield Sample(PRIMARY, 0)

    # -- the log -----------------------------------------------------------------------------------

    def opened(self, log: MasterLog) -> None:
        self.candidate = Candidate(self, self.member, log, self._incarnation, self._make_primary)

    def decided(self, decision: Decision) -> None:
        assert self.candidate is not None
        self.candidate.decided(decision)

    # -- other masters -----------------------------------------------------------------------------

    def reached(self, link: MasterLink) -> None:
        if self.candidate is not None:
            self.candidate.election.reached(link.name)
        self.member.reached(link)

    def refused(self, link: MasterLink) -> None:
        if self.candidate is not None:
            self.candidate.election.refused(link.name, self.host.monotonic())
        self.member.refused(link)

    def told(self, link: MasterLink, m: ElectionMessage) -> None:
        if self.candidate is not None:
            self.candidate.told(link, m)

    def end(self, reason: str) -> None:
        logger.info("%s", reason)
        self.stop(0)

    # -- the process -------------------------------------------------------------------------------

    def _tick(self) -> None:
        member, candidate = self.member, self.candidate
        if candidate is not None:
            candidate.log.tick()
            member.remembered.save(member.addresses())
        member.tick(self.host.monotonic())
        if candidate is not None:
            candidate.evaluate()
            candidate.tick()
        if not self.stopped:
            self.call_later(TICK_SECONDS, self._tick)

    def terminate(self) -> None:
        """Handle SIGTERM: resign, so that the other masters need not wait for the lease."""
        if self.candidate is not None and self.candidate.leave():
            self.call_later(RESIGN_SECONDS, lambda: self.stop(0))
        else:
            self.stop(0)

    def flush(self) -> None:
        super().flush()
        if self.primary is not None:
            self.primary.flush()

    def stop(self, code: int) -> None:
        if self.stopped:
            return
        if self.candidate is not None:
            self.candidate.abandon()
        super().stop(code)
        self.member.close()
