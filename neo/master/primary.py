"""The primary master at work: the phases of a cluster's life in their order."""

from __future__ import annotations

from neo.master.administration import ServeAdmin
from neo.master.core import MasterCore
from neo.master.identification import Identification
from neo.master.recovery import Recovery
from neo.master.running import ServeClient, ServeStorage, begin_service
from neo.master.states import Event
from neo.master.verification import verify
from neo.node.handler import Handler
from neo.protocol.enums import NodeType


class PrimaryMaster(MasterCore):
    async def live(self) -> None:
        """From RECOVERING to RUNNING; cancelled when the cluster stops being operational."""
        self.recovery = Recovery(self)
        await self.recovery.run()
        self.change_state(Event.RECOVERED)
        for peer in self.storages():
            peer.send(self.table())
        await verify(self)
        # What storages answered last made the table durable, too.
        assert self.partitions.ptid is not None
        self.served(self.partitions.ptid)
        self.change_state(Event.VERIFIED)
        begin_service(self)

    def stranger_handler(self) -> Handler:
        return Identification(self)

    def service_handler(self, node_type: NodeType) -> Handler:
        if node_type is NodeType.STORAGE:
            return ServeStorage(self)
        if node_type is NodeType.CLIENT:
            return ServeClient(self)
        return ServeAdmin(self)
