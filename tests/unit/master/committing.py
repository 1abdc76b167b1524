"""Steps of a commit that a test takes."""

from __future__ import annotations

from neo.protocol.packets import AnswerInformationLocked, AskBeginTransaction, AskLockInformation
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
