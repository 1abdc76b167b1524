"""Commands about masters, from an admin node: hand-over, membership, a lost table."""

from __future__ import annotations

import logging

from neo.master.cluster import Cluster
from neo.master.denial import denied
from neo.master.election.leadership import Tenure
from neo.master.election.membership import Membership
from neo.node.core import Core
from neo.node.peer import Peer
from neo.protocol.enums import ClusterState, ErrorCode
from neo.protocol.ids import format_nid
from neo.protocol.packets import Error, ForgetTable, Message, SetPrimary

logger = logging.getLogger("neo.master")


def done(text: str = "") -> Message:
    return Error(ErrorCode.ACK.value, text)


class MasterCommands:
    def __init__(self, cluster: Cluster, core: Core, tenure: Tenure | None) -> None:
        """``tenure``: None if this master is alone."""
        self._cluster = cluster
        self._core = core
        self._tenure = tenure

    @property
    def several(self) -> bool:
        return self._tenure is not None

    def broadcast(self, message: Message) -> None:
        """Send a message to the other masters."""
        if self._tenure is not None:
            self._tenure.node.links.broadcast(message)

    def membership(self) -> Membership:
        """Return the membership. Raises ErrorAnswer if this is the only master."""
        if self._tenure is None:
            raise denied("this cluster has one master: there is no election")
        return self._tenure.membership

    def set_primary(self, peer: Peer, message_id: int, m: SetPrimary) -> None:
        membership = self.membership()
        successor = membership.successor(m.nid)
        peer.answer(message_id, done(f"{format_nid(m.nid)} becomes the primary master"))
        # Hand over after the answer has left, because all connections are closed then.
        self._core.call_later(0, lambda: membership.hand_over(successor))

    def forget_table(self, peer: Peer, message_id: int, m: ForgetTable) -> None:
        cluster = self._cluster
        if cluster.state is not ClusterState.RECOVERING:
            raise denied(f"the cluster is {cluster.state.name}: its partition table is not lost")
        if cluster.served_ptid is None:
            raise denied("no partition table is missed")
        if m.ptid != cluster.served_ptid:
            raise denied(f"the newest partition table was {cluster.served_ptid}, not {m.ptid}")

        def forgotten() -> None:
            logger.warning("the operator gives up partition table %d", m.ptid)
            cluster.served_ptid = None
            cluster.served_nodes = set()
            peer.answer(message_id, done(f"partition table {m.ptid} is given up: now neoctl start"))

        if self._tenure is None:
            forgotten()
        else:
            self._tenure.membership.forget_table(m.ptid, forgotten)

    # -- verbs that are for storage nodes as well --------------------------------------------------

    def add_master(self, peer: Peer, message_id: int, nid: int) -> None:
        answer = done(f"Nodes added: {format_nid(nid)}")
        self.membership().add(nid, lambda: peer.answer(message_id, answer))

    def kill_master(self, peer: Peer, message_id: int, nid: int) -> None:
        kill = self.membership().kill(nid)
        peer.answer(message_id, done("State changed"))
        kill()

    def drop_master(self, peer: Peer, message_id: int, nid: int) -> None:
        answer = done("node permanently removed")
        self.membership().remove(nid, lambda: peer.answer(message_id, answer))
