"""The primary master at work: the phases of a cluster's life in their order."""

from __future__ import annotations

from neo.master.administration import ServeAdmin
from neo.master.core import MasterCore
from neo.master.identification import Identification
from neo.master.reading import ServeReader
from neo.master.recovery import Recovery
from neo.master.running import ServeClient, ServeStorage, begin_backup, begin_service
from neo.master.states import Event
from neo.master.verification import verify
from neo.node.handler import Handler
from neo.protocol.enums import NodeType


class PrimaryMaster(MasterCore):
    async def live(self) -> None:
        """From RECOVERING to RUNNING or STARTING_BACKUP.

        Cancelled when the cluster stops being operational.
        """
        self.recovery = Recovery(self)
        await self.recovery.run()
        self.change_state(Event.RECOVERED)
        for peer in self.storages():
            peer.send(self.table())
        self.ask_confirmations()
        await verify(self)
        # What storages answered last made the table durable, too.
        assert self.partitions.ptid is not None
        self.served(self.partitions.ptid)
        if self.recovery.backup_tids is None:
            self.change_state(Event.VERIFIED)
            begin_service(self)
        else:
            self.change_state(Event.VERIFIED_BACKUP)
            begin_backup(self, self.recovery.backup_tids)

    def stranger_handler(self) -> Handler:
        return Identification(self)

    def service_handler(self, node_type: NodeType) -> Handler:
        if node_type is NodeType.STORAGE:
            return ServeStorage(self)
        if node_type is NodeType.CLIENT:
            return ServeClient(self) if self.backup is None else ServeReader(self)
        return ServeAdmin(self)
