"""What storage nodes say is wrong with them is in the summary for monitoring, and mailed (specification
17.32)."""

from __future__ import annotations

from neo.admin.alerts import LOOK_SECONDS
from neo.protocol.packets import (
    FEATURE_OURS,
    AnswerLastTransaction,
    AnswerNodeConditions,
    AskLastTransaction,
    AskMonitorInformation,
    AskNodeConditions,
    Condition,
    NotifyFeatures,
)
from tests.unit.admin.world import Outbox, World

TID = bytes.fromhex("040d24252187ba31")
FULL: Condition = ("room", "problem", "3.0 MB are free on the disk of its database", "free space")
LOW: Condition = ("room", "warning", "700.0 MB are free on the disk of its database", "free space")
COPY: Condition = ("copy", "problem", "2 partitions cannot be copied to it: refused", "mend it")


def mails(*looks: list[tuple[int, Condition]]) -> list[tuple[str, str]]:
    """Return what is mailed if storage nodes say this at each look."""
    outbox = Outbox()
    world = World((), 0.0, mails=outbox)
    world.accept().send(NotifyFeatures([FEATURE_OURS]))
    for rows in looks:
        world.host.advance(LOOK_SECONDS)
        master = world.master
        master.answer(master.take(AskLastTransaction), AnswerLastTransaction(TID))
        world.tell(AnswerNodeConditions(rows))
    return outbox.mails


def test_it_is_mailed() -> None:
    (first, text), (last, _) = mails([(1, FULL)], [(1, FULL)], [], [])
    assert first == "NEO test: PROBLEM: test"
    assert f"problem: S1 says: {FULL[2]} -> free space" in text.splitlines()
    assert last == "NEO test: OK"


def test_one_more_is_mailed_although_there_was_a_problem_before() -> None:
    (_, one), (subject, both) = mails([(1, FULL)], [(1, FULL)], *[[(1, FULL), (2, COPY)]] * 3)
    assert subject == "NEO test: PROBLEM: test"
    assert COPY[2] not in one and FULL[2] in both and COPY[2] in both


def test_less_room_is_no_mail() -> None:
    less = ("room", "problem", "2.0 MB are free on the disk of its database", "free space")
    assert len(mails([(1, FULL)], [(1, FULL)], [(1, less)], [(1, less)])) == 1


def test_a_master_of_an_earlier_version_is_not_asked() -> None:
    world = World()
    world.accept()
    world.ctl().ask(AskMonitorInformation())
    assert world.master.has(AskLastTransaction) and not world.master.has(AskNodeConditions)
