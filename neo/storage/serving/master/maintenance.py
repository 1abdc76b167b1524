"""Packs, checks and reports that the primary master asks for."""

from __future__ import annotations

from dataclasses import dataclass

from neo.node.handler import on
from neo.node.peer import Peer
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.packets import (
    AnswerConditions,
    AskConditions,
    AskContentState,
    AskDisks,
    AskLostContents,
    AskPack,
    CheckPartition,
    MendCell,
    Message,
    NotifyRepair,
    VerifyContents,
)
from neo.storage.blobs.state import ContentStates
from neo.storage.blobs.verify import Verifier
from neo.storage.cluster import Cluster
from neo.storage.conditions import Conditions
from neo.storage.disks import Disks
from neo.storage.maintenance.check import Checker
from neo.storage.maintenance.cleanup import Orphans
from neo.storage.maintenance.pack import Packer


@dataclass(frozen=True, eq=False, repr=False)
class Maintenance:
    """Begins maintenance, and answers questions about it."""

    cluster: Cluster
    packer: Packer
    orphans: Orphans
    checker: Checker
    verifier: Verifier
    contents: ContentStates
    conditions: Conditions
    disks: Disks

    @on(AskPack)
    def pack(self, peer: Peer, message_id: int, m: AskPack) -> None:
        self._check_operational()
        self.packer.ask(peer, message_id, m.tid)

    def _check_operational(self) -> None:
        if not self.cluster.operational:
            raise ErrorAnswer(ErrorCode.NOT_READY, "this node does not serve now")

    @on(CheckPartition, MendCell)
    def check_partition(self, peer: Peer, message_id: int, m: CheckPartition | MendCell) -> None:
        if self.cluster.operational:
            self.checker.add(m)

    @on(VerifyContents)
    def verify_contents(self, peer: Peer, message_id: int, m: VerifyContents) -> None:
        if self.cluster.operational:
            self.verifier.verify(m.partition)

    @on(AskContentState)
    def content_state(self, peer: Peer, message_id: int, m: AskContentState) -> Message:
        return self.contents.describe()

    @on(AskConditions)
    def ask_conditions(self, peer: Peer, message_id: int, m: AskConditions) -> Message:
        return AnswerConditions(self.conditions.describe())

    @on(AskDisks)
    def ask_disks(self, peer: Peer, message_id: int, m: AskDisks) -> Message:
        return self.disks.describe()

    @on(AskLostContents)
    def lost_contents(self, peer: Peer, message_id: int, m: AskLostContents) -> Message:
        assert self.cluster.nid is not None
        return self.contents.lost(self.cluster.nid, m.length)

    @on(NotifyRepair)
    def repair(self, peer: Peer, message_id: int, m: NotifyRepair) -> None:
        self.orphans.prune(m.dry_run)
