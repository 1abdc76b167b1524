"""The master asks clients for the figures of their caches (specification 17.65, 17.66)."""

from __future__ import annotations

import pytest

from neo.master.maintenance import client_caches
from neo.master.maintenance.client_caches import ANSWER_SECONDS, FRESH_SECONDS
from neo.protocol.packets import (
    FEATURE_CACHES,
    FEATURE_OURS,
    FEATURES,
    AnswerCache,
    AskCache,
    AskClientCaches,
)
from tests.support.remote import Remote
from tests.unit.master.cluster import MasterWorld


def client(world: MasterWorld, *features: str) -> Remote:
    remote = world.client(**{FEATURES: [FEATURE_OURS, *features]})
    assert remote.peer.node is not None
    return remote


def told(name: str, hits: int = 0) -> AnswerCache:
    return AnswerCache(name, 1000, 10, 1, hits, 7)


def test_clients_that_announced_it_are_asked_and_told(world: MasterWorld) -> None:
    world.running()
    first, second, older = (client(world, *f) for f in ((FEATURE_CACHES,), (FEATURE_CACHES,), ()))
    asked = world.admin().ask(AskClientCaches())
    second.answer(second.take(AskCache), told("b:2"))
    assert not asked.done and not older.has(AskCache)
    first.answer(first.take(AskCache), told("a:1"))
    nids = [remote.peer.node.nid for remote in (first, second) if remote.peer.node is not None]
    assert asked.result().row_list == [
        (nid, name, 1000, 10, 1, 0, 7) for nid, name in zip(nids, ("a:1", "b:2"), strict=True)
    ]


def test_a_client_is_asked_once_in_some_seconds_however_many_ask(world: MasterWorld) -> None:
    world.running()
    remote = client(world, FEATURE_CACHES)
    asked = world.admin().ask(AskClientCaches())
    remote.answer(remote.take(AskCache), told("a:1", 3))
    asked.result()
    for _ in range(20):
        assert world.admin().ask(AskClientCaches()).result().row_list[0][5] == 3
    assert not remote.has(AskCache)
    world.host.advance(FRESH_SECONDS)
    asked = world.admin().ask(AskClientCaches())
    remote.answer(remote.take(AskCache), told("a:1", 4))
    assert asked.result().row_list[0][5] == 4


def test_a_client_that_stands_still_is_waited_for_once_and_has_one_question(
    world: MasterWorld,
) -> None:
    world.running()
    remote = client(world, FEATURE_CACHES)
    asked = world.admin().ask(AskClientCaches())
    question = remote.take(AskCache)
    assert not asked.done
    world.host.advance(ANSWER_SECONDS)
    assert asked.result().row_list == []
    for _ in range(5):
        world.host.advance(FRESH_SECONDS)
        assert world.admin().ask(AskClientCaches()).result().row_list == []
    assert not remote.has(AskCache)
    # It goes on: what it tells late is told the next time, and it is asked again.
    remote.answer(question, told("a:1"))
    asked = world.admin().ask(AskClientCaches())
    remote.take(AskCache)
    world.host.advance(ANSWER_SECONDS)
    assert [row[1] for row in asked.result().row_list] == ["a:1"]


def test_a_client_that_is_gone_is_forgotten(world: MasterWorld) -> None:
    world.running()
    stays, goes = client(world, FEATURE_CACHES), client(world, FEATURE_CACHES)
    asked = world.admin().ask(AskClientCaches())
    stays.answer(stays.take(AskCache), told("stays"))
    goes.lose()
    assert [row[1] for row in asked.result().row_list] == ["stays"]
    # Another client may have its id.
    other = client(world, FEATURE_CACHES)
    asked = world.admin().ask(AskClientCaches())
    other.answer(other.take(AskCache), told("other"))
    assert [row[1] for row in asked.result().row_list] == ["stays", "other"]


def test_an_answer_is_bounded(world: MasterWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_caches, "CLIENTS_MAX", 2)
    world.running()
    clients = [client(world, FEATURE_CACHES) for _ in range(3)]
    asked = world.admin().ask(AskClientCaches())
    for number, remote in enumerate(clients[:2]):
        remote.answer(remote.take(AskCache), told(str(number)))
    assert [row[1] for row in asked.result().row_list] == ["0", "1"]
    assert not clients[2].has(AskCache)
