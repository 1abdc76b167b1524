"""A digest is computed when nothing is locked that may be in its range."""

from __future__ import annotations

from typing import Any

import pytest

from neo.protocol.ids import ZERO_OID, ZERO_TID, p64
from neo.protocol.packets import (
    AnswerCheckSerialRange,
    AnswerCheckTIDRange,
    AskCheckSerialRange,
    AskCheckTIDRange,
    AskLockInformation,
    NotifyUnlockInformation,
    Request,
)
from tests.unit.storage.comparing import FINE, SERIALS, TIDS, Compared, digest
from tests.unit.storage.replicas import storage
from tests.unit.storage.requests import store, vote
from tests.unit.storage.world import End, World


def lock(world: World, master: End) -> None:
    """Lock a transaction with tid 12, which stores object 0."""
    client = world.client(master)
    assert store(client, 10, 0) is None
    vote(client, 10, 0)
    master.ask(AskLockInformation(p64(10), p64(12)))


@pytest.mark.parametrize(
    "question",
    [
        AskCheckTIDRange(0, 9, ZERO_TID, p64(12)),
        AskCheckSerialRange(0, 9, ZERO_TID, p64(12), ZERO_OID),
    ],
)
def test_a_digest_waits_for_transactions_that_are_locked(
    world: World, master: End, question: Request[Any]
) -> None:
    """Specification 11.6."""
    lock(world, master)
    peer = storage(world, master, 2)
    answers = peer.ask_later(question)
    world.settle()
    assert not answers
    master.send(NotifyUnlockInformation(p64(10)))
    world.wait(lambda: bool(answers), "the digest does not come")
    assert answers[0].count == 1


@pytest.mark.parametrize(
    "question",
    [
        AskCheckTIDRange(0, 9, ZERO_TID, p64(11)),
        AskCheckSerialRange(0, 9, ZERO_TID, p64(11), ZERO_OID),
    ],
)
def test_a_digest_does_not_wait_for_what_is_later_than_its_range(
    world: World, master: End, question: Request[Any]
) -> None:
    """Specification 11.6, 25.16: that may wait for the synchronous backup that compares."""
    lock(world, master)
    assert storage(world, master, 2).ask(question).count == 0


def lock_beside(checked: Compared, number: int) -> None:
    """Lock a transaction with this tid, which changes object 2."""
    client = checked.world.client(checked.master)
    assert store(client, 14, 2, serial=16) is None
    vote(client, 14, 2)
    checked.master.ask(AskLockInformation(p64(14), p64(number)))


def test_the_own_digest_does_not_wait_for_what_is_later_than_the_range(world: World) -> None:
    """Specification 11.6, 25.16: that may wait for a synchronous backup, which is away."""
    checked = Compared(world, 2)
    lock_beside(checked, 24)
    checked.check()
    checked.connect(2)
    checked.replies(2, TIDS)
    checked.replies(2, SERIALS)
    assert checked.result() == [FINE]


def test_the_own_digest_waits_for_what_is_locked_in_the_range(world: World) -> None:
    """Specification 11.6."""
    checked = Compared(world, 2)
    lock_beside(checked, 18)
    checked.check()
    checked.connect(2)
    tids, oids = digest(12, 16, 18, 20), digest(0, 2, 2, 0)
    checked.replies(2, AnswerCheckTIDRange(4, tids, p64(20)))
    world.settle()
    assert not checked.others[2].inbox
    checked.master.send(NotifyUnlockInformation(p64(14)))
    checked.replies(2, AnswerCheckSerialRange(4, tids, p64(20), oids, p64(0)))
    assert checked.result() == [FINE]
