"""Report the health of a backup cluster to the admin of its upstream cluster (specification 17.23,
17.24).

The master sends the address of that admin (NotifyUpstreamAdmin). The first report is complete, later ones
contain the changes. Questions of that admin about tids are forwarded to the primary master.
"""

from __future__ import annotations

import logging
from typing import Any

from neo.admin.primary import PrimaryLink
from neo.net.sockets import format_address
from neo.node.answering import answering
from neo.node.core import Core
from neo.node.handler import Handler, on
from neo.node.peer import Peer
from neo.node.task import Future
from neo.protocol.enums import ErrorCode, NodeState, NodeType
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.packets import (
    Address,
    Answer,
    AskLastTransaction,
    AskRecovery,
    Error,
    NotifyMonitorInformation,
    Request,
    RequestIdentification,
)
from neo.topology.masters import RETRY_SECONDS
from neo.topology.nodes import Node

logger = logging.getLogger("neo.admin")

#: Timeout of an identification.
IDENTIFY_SECONDS = 10.0


class Reporter:
    def __init__(self, node: Core, link: PrimaryLink, cluster: str) -> None:
        self._node = node
        self._link = link
        self._cluster = cluster
        self._address: Address | None = None
        self._peer: Peer | None = None
        self._dialing = False
        self._sent: dict[str, Any] = {}
        self._reported = ""

    def upstream(self, address: Address) -> None:
        """Report to the admin at this address from now on (NotifyUpstreamAdmin)."""
        if address != self._address:
            self._address = address
            if self._peer is not None:
                self._peer.close()
                self._peer = None
        if self._peer is None and not self._dialing:
            self._node.spawn(self._connect())

    async def _connect(self) -> None:
        self._dialing = True
        while self._peer is None:
            address = self._address
            assert address is not None
            peer = self._node.dial(address, _UpstreamAdmin(self._link, self))
            request = RequestIdentification(NodeType.ADMIN, None, None, self._cluster, None, {})
            try:
                with answering(self._node, peer, IDENTIFY_SECONDS):
                    await peer.ask(request)
            except (ConnectionLost, ErrorAnswer) as e:
                reason = f"{format_address(address)}: {e}"
                if reason != self._reported:
                    self._reported = reason
                    logger.warning("cannot report to the admin node of the upstream cluster, %s", reason)
                await self._node.sleep(RETRY_SECONDS)
                continue
            if address != self._address:
                peer.close()
                continue
            logger.info("reporting to the upstream cluster at %s", format_address(address))
            peer.node = Node(NodeType.ADMIN, None, address, NodeState.RUNNING)
            self._peer, self._sent, self._reported = peer, {}, ""
        self._dialing = False
        self.changed()

    def lost(self, peer: Peer) -> None:
        if peer is self._peer:
            self._peer = None
            self._node.spawn(self._connect())

    def changed(self) -> None:
        """Send what has changed since the last report."""
        primary = self._link.primary
        if self._peer is None or primary is None or primary.state is None:
            return
        cells, down = primary.counts()
        info = {"cluster_state": primary.state, "down": down, "pt_summary": cells}
        new = {key: value for key, value in info.items() if self._sent.get(key) != value}
        if new:
            self._sent = info
            self._peer.send(NotifyMonitorInformation(new))


class _UpstreamAdmin(Handler):
    def __init__(self, link: PrimaryLink, reporter: Reporter) -> None:
        self._link = link
        self._reporter = reporter

    def lost(self, peer: Peer, reason: str) -> None:
        self._reporter.lost(peer)

    @on(AskRecovery, AskLastTransaction)
    def question(self, peer: Peer, message_id: int, message: Request[Answer]) -> None:
        """Forward to the primary master (specification 17.23, 17.24)."""
        primary = self._link.primary
        if primary is None:
            peer.refuse(message_id, ErrorCode.NOT_READY, "Not connected to a primary master.")
            return

        def answered(future: Future[Answer]) -> None:
            answer: Answer
            try:
                answer = future.result()
            except ErrorAnswer as e:
                answer = Error(e.code.value, e.message)
            except ConnectionLost as e:
                answer = Error(ErrorCode.NOT_READY.value, str(e))
            peer.answer(message_id, answer)

        primary.peer.ask(message).then(answered)
