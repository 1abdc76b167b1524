"""A peer of a storage node harms only itself: internal errors, jobs, answers that are not read."""

from __future__ import annotations

from typing import Any

import pytest

from neo.node import backlog
from neo.protocol.enums import ErrorCode
from neo.protocol.ids import ZERO_OID, ZERO_TID, p64
from neo.protocol.packets import (
    AnswerObject,
    AskCheckTIDRange,
    AskFetchObjects,
    AskFetchTransactions,
    AskLockInformation,
    AskObject,
    AskRevisions,
    NotifyUnlockInformation,
    Ping,
    Pong,
    Request,
)
from tests.unit.storage.replicas import MAX, full, storage
from tests.unit.storage.requests import voted
from tests.unit.storage.world import End, World, refused

JOBS = [
    AskCheckTIDRange(0, 10, ZERO_TID, MAX),
    AskFetchTransactions(0, 10, ZERO_TID, MAX, []),
    AskFetchObjects(0, 10, ZERO_TID, MAX, ZERO_OID, {}),
]


def mistake(*arguments: object) -> None:
    raise OverflowError("int too big to convert")


@pytest.mark.parametrize("request_", JOBS, ids=lambda m: type(m).__name__)
def test_a_mistake_in_a_job_that_a_peer_asked_for_fails_the_job(
    world: World,
    master: End,
    request_: Request[Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Specification 22.7."""
    full(world, master)
    peer = storage(world, master, 2)
    with monkeypatch.context() as patch:
        patch.setattr(world.backend.reads, "tids_ascending", mistake)
        patch.setattr(world.backend.replication, "objects_ascending", mistake)
        code, text = refused(peer.ask(request_))
    assert code == ErrorCode.CHECKING_ERROR.value
    assert "internal failure" in text
    assert "int too big to convert" in caplog.text, "with its traceback"
    assert world.host.exit_code is None
    assert not master.closed and not peer.closed
    peer.ask(request_)
    assert peer.peer._jobs == 0


def test_a_mistake_in_a_read_that_waited_hurts_only_that_read(
    world: World, master: End, client: End, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is executed when another peer, the master, unlocks."""
    lock(world, master, client, 20)
    waiting = client.ask_later(AskObject(p64(6), None, MAX))
    assert not waiting
    monkeypatch.setattr(world.backend.reads, "load", mistake)
    master.send(NotifyUnlockInformation(p64(20)))
    world.wait(lambda: bool(waiting), "no answer")
    assert "internal failure" in refused(waiting[0])[1]
    assert world.host.exit_code is None
    assert not master.closed
    assert client.ask(Ping()) == Pong()


def lock(world: World, master: End, client: End, number: int) -> None:
    voted(client, number, 6)
    assert master.ask(AskLockInformation(p64(number), p64(number + 2)))


def test_reads_that_waited_for_a_lock_wait_for_the_peer_to_read(
    world: World, master: End, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog, "PEER_BYTES", 300_000)
    client = world.client(master)
    lock(world, master, client, 20)
    for _ in range(50):
        client.ask_later(AskObject(p64(6), None, MAX))
    loads: list[int] = []

    def load(*arguments: object) -> object:
        loads.append(1)
        return p64(22), None, 0, bytes(20), bytes(400_000), None

    monkeypatch.setattr(world.backend.reads, "load", load)
    client.peer.slow()
    client.unsent = 400_000
    master.send(NotifyUnlockInformation(p64(20)))
    world.settle()
    assert not loads, "the client does not read"
    client.unsent = 0
    client.peer.drained()
    world.wait(lambda: len(loads) == 50, "they do not go on")
    assert sum(1 for _, m in client.inbox if isinstance(m, AnswerObject)) == 0
    assert client.ask(Ping()) == Pong()


def test_a_reader_has_a_few_pages_at_a_time(world: World, master: End) -> None:
    full(world, master)
    client = world.client(master, -0x1FFFFFFD)
    page = AskRevisions(0, 0, ZERO_TID, MAX, None, 1000, True)
    lock(world, master, client, 30)
    answers = [client.ask_later(page) for _ in range(9)]
    assert client.peer._jobs == backlog.JOBS_BYTES
    master.send(NotifyUnlockInformation(p64(30)))
    world.wait(lambda: all(answers), "pages are missing")
    assert client.peer._jobs == 0
