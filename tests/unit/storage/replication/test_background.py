"""Replication gives way to clients: on either side it works in small pieces, with pauses
(specification 10.29)."""

from __future__ import annotations

from hashlib import sha1

import pytest

from neo.protocol.ids import ZERO_OID, ZERO_TID, p64
from neo.protocol.packets import (
    AddObject,
    AnswerFetchObjects,
    AnswerFetchTransactions,
    AskFetchObjects,
    AskFetchTransactions,
)
from tests.unit.storage.pauses import slow_clock
from tests.unit.storage.replicas import (
    MAX,
    Destination,
    answer,
    full,
    reply,
    storage,
    take_question,
)
from tests.unit.storage.requests import load
from tests.unit.storage.world import End, World, refused


def test_a_source_works_in_small_pieces_with_pauses_while_clients_are_at_work(
    world: World, master: End, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neo.storage.background.STEP_LENGTH", 2)
    full(world, master)
    client = world.client(master)
    peer = storage(world, master, 2)
    load(client, 0)
    monkeypatch.setattr(world.host, "monotonic", slow_clock(world, 0.01))
    answers = peer.ask_later(AskFetchObjects(0, 1000, ZERO_TID, MAX, ZERO_OID, {}))
    world.settle()
    world.host.advance(0)
    assert len(peer.inbox) == 2 and not answers
    world.host.advance(0.05)  # the pause is over
    assert len(peer.inbox) == 4


def test_a_destination_writes_in_small_pieces_with_pauses_while_clients_are_at_work(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neo.storage.background.STEP_LENGTH", 2)
    node = Destination(world)
    client = world.client(node.master)
    node.unfinished(12)
    source = node.source()
    reply(source, AskFetchTransactions, AnswerFetchTransactions(None, None, []))
    message_id, _ = take_question(source, AskFetchObjects)
    refused(load(client, 0))
    monkeypatch.setattr(world.host, "monotonic", slow_clock(world, 0.001))
    for oid in (0, 2, 4, 6, 8):
        row = AddObject(p64(oid), p64(12), 0, sha1(b"a").digest(), b"a", None)
        source.connection.send(row, message_id)
    answer(source, message_id, AnswerFetchObjects(None, None, None, {}))

    def written() -> int:
        refused(load(client, 0))
        world.settle()
        return len(world.backend.replication.objects_ascending(0, ZERO_TID, ZERO_OID, MAX, 100))

    counts = [written()]
    while counts[-1] < 5:
        world.host.advance(0.05)
        counts.append(written())
    assert counts == [1, 3, 5]  # what comes first is written at once
