"""Steps of a commit that a test takes."""

from __future__ import annotations

from typing import Any

from neo.node.task import Future
from neo.protocol.packets import (
    AnswerInformationLocked,
    AskBeginTransaction,
    AskFinishTransaction,
    AskLockInformation,
)
from tests.support.remote import Remote
from tests.unit.master.cluster import MasterWorld, tid


def begin(client: Remote, imposed: bytes | None = None) -> bytes:
    ttid: bytes = client.ask(AskBeginTransaction(imposed)).result().ttid
    return ttid


def lock(storage: Remote) -> AskLockInformation:
    question = storage.take(AskLockInformation)
    storage.answer(question, AnswerInformationLocked(question.ttid))
    return question


def oid_of(world: MasterWorld, partition: int) -> bytes:
    return tid(len(world.master.partitions) * 5 + partition)


class Replicated:
    """S1 and S2 have all partitions, and a client has begun a transaction."""

    def __init__(self) -> None:
        self.world = MasterWorld(replicas=1)
        self.first, self.second = self.world.running(2)
        self.client = self.world.client()
        self.ttid = begin(self.client)

    def finish(self) -> Future[Any]:
        """Ask to finish the transaction, which changes an object."""
        oids = [oid_of(self.world, 0)]
        return self.client.ask(AskFinishTransaction(self.ttid, oids, []))
