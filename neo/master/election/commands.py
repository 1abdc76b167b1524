"""Commands about the masters: their state, the primary, adding and removing members, a lost table.

Belongs to the primary master. The operator reads the texts of refusals.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from neo.master.cluster import Cluster
from neo.master.denial import PRIMARY_STAYS, denied
from neo.master.election.epochs import Forget
from neo.master.election.leadership import ElectedMaster, Tenure
from neo.node.core import Core
from neo.node.peer import Peer
from neo.protocol.enums import ClusterState, ErrorCode, NodeState, NodeType
from neo.protocol.ids import format_nid
from neo.protocol.packets import (
    AnswerElection,
    Error,
    ForgetTable,
    MasterRow,
    Message,
    NodeRow,
    NotifyNodeInformation,
    SetPrimary,
)
from neo.transactor.learner import ALL_NEEDED
from neo.transactor.members import Member, Members, MembershipError

logger = logging.getLogger("neo.master")

#: Number of transactions by which a master may lag unreported: its position is a quarter of a second old.
BEHIND_SHOWN = 10


class Membership:
    """All methods raise ErrorAnswer for a command that must be refused."""

    def __init__(self, node: ElectedMaster) -> None:
        self._node = node

    # -- the members -------------------------------------------------------------------------------

    def _row(self, nid: int) -> NodeRow:
        for row in self._node.member.rows():
            if row[2] == nid:
                return row
        raise denied("unknown node")

    def _member(self, row: NodeRow) -> Member:
        members = self._node.log.engine.members.all
        return next(member for member in members if member.address == row[1])

    def _voting(self) -> set[str]:
        """Return the names of the alive members that vote. A member that was lost, or has come back,
        counts once it has announced its journal again."""
        members = self._node.log.engine.members.all
        return {self._node.member.me} | {member.name for member in members if self._votes(member)}

    def _votes(self, member: Member) -> bool:
        peers = self._node.log.engine.peers
        link = self._node.links.get(member.name)
        if member.node in peers.learners | peers.strangers or link is None:
            return False
        state = link.state if link.up and link.current else None
        return state is not None and state.begun and state.journal == peers.known.get(member.node)

    def _check_majority(self, members: Members, voting: set[str], what: str) -> None:
        """Check that a majority of ``members`` would vote, so that the log can go on."""
        count = len([m for m in members.all if m.name in voting])
        if 2 * count <= len(members.all):
            raise denied(
                f"{what}: {count} of {len(members.all)} masters would vote, which is no majority: start"
                " the others first, or drop those that are lost"
            )

    def describe(self) -> AnswerElection:
        node, log = self._node, self._node.log
        rows: list[MasterRow] = []
        for member in log.engine.members.all:
            nid = node.member.nid_of(member.name)
            assert nid is not None
            if member.name == node.member.me:
                rows.append((nid, member.address, "primary", log.tid, ""))
            else:
                tid = max(log.engine.peers.tids.get(member.node, 1) - 1, 0)
                rows.append((nid, member.address, "secondary", tid, self._note(member, tid)))
        for row in node.member.rows():
            if row[3] is NodeState.PENDING and row[1] is not None and row[2] is not None:
                rows.append(
                    (row[2], row[1], "pending", 0, f"does not vote: neoctl add {format_nid(row[2])}")
                )
        return AnswerElection(
            log.epochs.epoch, node.lease_left(log.epochs.epoch), log.tid, log.epochs.ptid, rows
        )

    def _note(self, member: Member, tid: int) -> str:
        """Return what the operator should know of another member, which is at transaction ``tid``."""
        node, log = self._node, self._node.log
        link = node.links.get(member.name)
        if link is None or not link.alive(node.host.monotonic()):
            return "is not heard"
        if member.node in log.engine.peers.strangers:
            return "came back without its log: see its own log file"
        if not self._votes(member):
            return "learns the log, and does not vote yet"
        behind = log.tid - tid
        return f"is {behind} transactions behind" if behind > BEHIND_SHOWN else ""

    # -- the primary -------------------------------------------------------------------------------

    def successor(self, nid: int) -> str:
        """Return the name of the master to which the primary can hand over."""
        if nid == self._node.member.nid:
            raise denied(f"{format_nid(nid)} is the primary master already")
        row = self._row(nid)
        if row[3] is not NodeState.RUNNING:
            raise denied(f"{format_nid(nid)} is {row[3].name}: only a running master can take over")
        member = self._member(row)
        if not self._votes(member):
            raise denied(f"{format_nid(nid)} does not vote yet: it learns the log")
        return member.name

    def hand_over(self, successor: str) -> None:
        self._node.resign(successor, f"it hands over to {successor}")

    # -- members -----------------------------------------------------------------------------------

    def add(self, nid: int, done: Callable[[], None]) -> None:
        """Make a pending master a member; ``done`` is called when the change is in the log."""
        row = self._row(nid) if nid != self._node.member.nid else None
        if row is None or row[3] is not NodeState.PENDING or row[1] is None:
            raise denied(f"{format_nid(nid)} is a master of this cluster already")
        link = self._node.links.of(row[1])
        assert link is not None
        name, address = link.name, link.address

        def change(members: Members) -> Members | None:
            return None if members.named(name) else members.added(name, address)

        added = change(self._node.log.engine.members)
        if added is not None:
            voting = self._voting()
            if len(added.all) <= ALL_NEEDED:
                voting.add(name)  # with more members it votes only after the log has grown
            self._check_majority(added, voting, f"{name} cannot be added")
        logger.info("master %s is added", name)
        self._change(change, done)

    def remove(self, nid: int, done: Callable[[], None]) -> None:
        """Remove a master that is down."""
        if nid == self._node.member.nid:
            raise denied("the primary master cannot be dropped: neoctl set primary to another first")
        row = self._row(nid)
        if row[3] is NodeState.RUNNING:
            name = format_nid(nid)
            raise denied(f"{name} runs: it must be stopped before it is dropped (neoctl kill {name})")
        if row[3] is NodeState.PENDING:
            raise denied(f"{format_nid(nid)} is no master of this cluster: stop its process")
        name = self._member(row).name

        def change(members: Members) -> Members | None:
            return members.removed(name) if members.named(name) else None

        removed = change(self._node.log.engine.members)
        if removed is not None:
            self._check_majority(removed, self._voting(), f"{format_nid(nid)} cannot be dropped")
        logger.info("master %s is dropped", name)
        self._change(change, done)

    def _change(self, change: Callable[[Members], Members | None], done: Callable[[], None]) -> None:
        log = self._node.log

        def make() -> Members | None:
            try:
                members = change(log.engine.members)
            except MembershipError as e:
                logger.error("the masters cannot be changed: %s", e)
                members = None
            if members is None:
                done()
            return members

        log.post(make, done)

    def kill(self, nid: int) -> Callable[[], None]:
        """Return a function that tells a secondary master to end."""
        if nid == self._node.member.nid:
            raise denied(PRIMARY_STAYS)
        row = self._row(nid)
        assert row[1] is not None
        link = self._node.links.of(row[1])
        if row[3] is NodeState.DOWN or link is None:
            raise denied(f"{format_nid(nid)} is already down")
        members = self._node.log.engine.members
        if row[3] is NodeState.RUNNING:
            self._check_majority(
                members, self._voting() - {link.name}, f"{format_nid(nid)} cannot be stopped"
            )
        down = (NodeType.MASTER, link.address, nid, NodeState.DOWN, None)
        stamp = self._node.host.time()
        return lambda: link.send(NotifyNodeInformation(stamp, [down]))

    # -- the guard of the partition table ----------------------------------------------------------

    def forget_table(self, ptid: int, done: Callable[[], None]) -> None:
        """Give up a partition table, and the transactions that were committed while it was in service."""
        node, log = self._node, self._node.log
        epoch = log.epochs.epoch

        def make() -> Forget | None:
            current = log.epochs.epoch == epoch and log.epochs.ptid == ptid
            return Forget(epoch, node.incarnation, ptid) if current else None

        log.post(make, done)


def done(text: str = "") -> Message:
    return Error(ErrorCode.ACK.value, text)


class MasterCommands:
    def __init__(self, cluster: Cluster, core: Core, tenure: Tenure | None) -> None:
        """``tenure``: None if this master is alone."""
        self._cluster = cluster
        self._core = core
        self._node = None if tenure is None else tenure.node

    @property
    def several(self) -> bool:
        return self._node is not None

    def broadcast(self, message: Message) -> None:
        """Send a message to the other masters."""
        if self._node is not None:
            self._node.links.broadcast(message)

    def membership(self) -> Membership:
        """Return the membership. Raises ErrorAnswer if this is the only master."""
        if self._node is None:
            raise denied("this cluster has one master: there is no election")
        return Membership(self._node)

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

        if self.several:
            self.membership().forget_table(m.ptid, forgotten)
        else:
            forgotten()

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
