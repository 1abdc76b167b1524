"""The primary master at work: the phases of a cluster's life in their order."""

from __future__ import annotations

from neo.master.clock import watch_clock
from neo.master.core import MasterCore
from neo.master.phases.comparison import compare
from neo.master.phases.recovery import Recovery
from neo.master.phases.verification import verify
from neo.master.serving.admin import ServeAdmin
from neo.master.serving.backup_client import ServeReader
from neo.master.serving.client import ServeClient, ServeStorage, begin_backup, begin_service
from neo.master.serving.identification import Identification
from neo.master.states import Event
from neo.node.handler import Handler
from neo.node.peer import Link
from neo.protocol.enums import NodeState, NodeType
from neo.protocol.packets import NodeRow
from neo.topology.nodes import Node


class PrimaryMaster(MasterCore):
    async def live(self) -> None:
        """From RECOVERING to RUNNING or STARTING_BACKUP, then watch the clock.

        Cancelled when the cluster stops being operational.
        """
        self.recovery = Recovery(self)
        await self.recovery.run()
        self.change_state(Event.RECOVERED)
        for peer in self.storages():
            peer.send(self.table())
        self.ask_confirmations()
        await verify(self)
        backup = self.recovery.backup
        await compare(self, None if backup is None else backup.least, self.recovery.forced)
        # What storages answered last made the table durable, too.
        assert self.partitions.ptid is not None
        self.served(self.partitions.ptid)
        self.was_operational = True
        if backup is None:
            self.change_state(Event.VERIFIED)
            begin_service(self)
        else:
            self.change_state(Event.VERIFIED_BACKUP)
            begin_backup(self, backup)
        await watch_clock(self)

    # -- one of several masters --------------------------------------------------------------------

    def output(self, link: Link, data: bytes, close: bool) -> None:
        """Without the lease nothing leaves, and not before the log has what it is about."""
        tenure = self.tenure
        if tenure is None:
            super().output(link, data, close)
        elif not tenure.may_send():
            super().output(link, b"", close)
        elif tenure.waits:
            # Bounded by the lease, which is lost when the log does not go on.
            self._held.append((link, data, close))
        else:
            super().output(link, data, close)

    def release(self) -> None:
        """The log has the last partition table."""
        self.published.logged(self.published.ptid)
        self.table_confirmed()
        held, self._held = self._held, []
        for link, data, close in held:
            self.output(link, data, close)

    def abandon(self) -> None:
        super().abandon()
        held, self._held = self._held, []
        for link, _, close in held:
            if close:
                link.close()

    def set_masters(self, rows: list[NodeRow]) -> None:
        """The other masters, as they are now."""
        addresses = {row[1] for row in rows}
        changed = []
        for node in self.nodes.of_type(NodeType.MASTER):
            if node is not self.node and node.address not in addresses:
                node.state = NodeState.UNKNOWN
                self.nodes.remove(node)
                changed.append(node)
        for node_type, address, nid, state, _ in rows:
            known = self.nodes.by_address(node_type, address)
            if known is not None and known.nid != nid:
                self.nodes.remove(known)
                known = None
            if known is None and self.nodes.get(nid) is None:
                known = self.nodes.add(Node(node_type, nid, address))
            if known is not None and known.state is not state:
                known.state = state
                changed.append(known)
        if changed:
            self.notify_nodes(changed)

    def stranger_handler(self) -> Handler:
        return Identification(self)

    def service_handler(self, node_type: NodeType) -> Handler:
        if node_type is NodeType.STORAGE:
            return ServeStorage(self)
        if node_type is NodeType.CLIENT:
            return ServeClient(self) if self.backup is None else ServeReader(self)
        return ServeAdmin(self)
