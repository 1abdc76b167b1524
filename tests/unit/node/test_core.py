"""The core of a node: how long it waits for whom, its timers and its end; tables of handlers."""

from __future__ import annotations

import pytest

from neo.node.core import STRANGER_SECONDS, WATCH_SECONDS, Core
from neo.node.handler import Handler, on
from neo.node.peer import Peer
from neo.protocol.enums import NodeType
from neo.protocol.errors import ConnectionLost
from neo.protocol.packets import (
    AnswerLastTransaction,
    AnswerNewOIDs,
    AskLastTransaction,
    AskNewOIDs,
    Message,
    Ping,
    Pong,
)
from neo.topology.nodes import Node
from tests.support.remote import FakeHost, Remote
from tests.unit.node.serving import TID, Asking, Server

# -- core ----------------------------------------------------------------------------------------


def test_strangers_are_disconnected_after_a_while(
    core: Server, host: FakeHost, caplog: pytest.LogCaptureFixture
) -> None:
    """Specification 2.32."""
    stranger, known = Remote.connect(core), Remote.connect(core)
    known.peer.node = Node(NodeType.STORAGE, 3)
    dialed = Asking(core, host)
    host.advance(STRANGER_SECONDS - 1)
    assert not stranger.closed
    host.advance(STRANGER_SECONDS)
    assert stranger.closed
    assert not known.closed
    assert not dialed.remote.closed
    assert "did not identify itself in time" in caplog.text


def test_the_oldest_strangers_go_when_there_are_too_many(
    core: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Specification 2.38."""
    strangers = [Remote.connect(core) for _ in range(4)]
    strangers[0].peer.trust()
    strangers[1].peer.welcome()
    core.limit_strangers(4)
    assert not any(remote.closed for remote in strangers), "there is room for one"
    strangers.append(Remote.connect(core))
    core.limit_strangers(4)
    strangers.append(Remote.connect(core))
    core.limit_strangers(2)
    assert [remote.closed for remote in strangers] == [False, True, True, True, True, False]
    assert caplog.text.count("unidentified peers: disconnecting the oldest") == 1


def test_a_peer_that_owes_an_answer_and_hangs_is_given_up(
    core: Server, host: FakeHost, caplog: pytest.LogCaptureFixture
) -> None:
    """Specification 2.30."""
    hanging, slow, idle = Asking(core, host), Asking(core, host), Asking(core, host)
    futures = [hanging.peer.ask(AskLastTransaction()), slow.peer.ask(AskLastTransaction())]
    core.flush()
    host.advance(4 * WATCH_SECONDS)
    assert [a.remote.has(Ping) for a in (hanging, slow, idle)] == [True, True, False]
    for _ in range(20):
        # What takes long is not what hangs.
        if slow.remote.has(Ping):
            slow.remote.answer(slow.remote.take(Ping), Pong())
        host.advance(WATCH_SECONDS)
    assert [a.remote.closed for a in (hanging, slow, idle)] == [True, False, False]
    assert core.handler.lost_peers == ["it does not answer"]
    with pytest.raises(ConnectionLost):
        futures[0].result()
    slow.remote.answer(slow.remote.take(AskLastTransaction), AnswerLastTransaction(TID))
    assert futures[1].result() == AnswerLastTransaction(TID)
    assert "does not answer Ping either: disconnecting it" in caplog.text


def test_a_process_that_stood_still_hears_first_what_came_meanwhile(
    core: Server, host: FakeHost
) -> None:
    """Specification 2.30."""
    asking = Asking(core, host)
    asking.peer.ask(AskLastTransaction())
    core.flush()
    host.advance(4 * WATCH_SECONDS)
    host.elapsed += 1000 * WATCH_SECONDS
    host.advance(0)
    asking.remote.answer(asking.remote.take(Ping), Pong())
    host.advance(2 * WATCH_SECONDS)
    assert not asking.remote.closed


def test_nodes_that_serve_neoctl_are_patient(core: Server, host: FakeHost) -> None:
    """Specification 2.32."""
    core.must_identify = False
    stranger = Remote.connect(core)
    host.advance(10 * STRANGER_SECONDS)
    assert not stranger.closed


def test_stopping_closes_everything_once(core: Server, host: FakeHost) -> None:
    remote = Remote.connect(core)
    task = core.spawn(_forever(core))
    core.stop(3)
    core.stop(0)
    assert host.exit_code == 3
    assert remote.closed
    assert task.done
    assert not core.peers


def test_timers_of_a_stopped_core_do_nothing(core: Server, host: FakeHost) -> None:
    called: list[int] = []
    core.call_later(1, lambda: called.append(1))
    core.stop(0)
    host.advance(100)
    assert called == []


def test_a_workflow_that_fails_ends_the_node(
    core: Server, host: FakeHost, caplog: pytest.LogCaptureFixture
) -> None:
    """Specification 22.7."""
    async def flow() -> None:
        await core.sleep(1)
        raise KeyError("state unknown")

    core.spawn(flow())
    host.advance(1)
    assert host.exit_code == 1
    assert "flow failed" in caplog.text
    assert "KeyError: 'state unknown'" in caplog.text


def test_a_cancelled_workflow_does_not_end_the_node(core: Server, host: FakeHost) -> None:
    task = core.spawn(_forever(core))
    task.cancel()
    host.advance(10)
    assert host.exit_code is None


async def _forever(core: Core) -> None:
    while True:
        await core.sleep(1)


# -- tables of handlers --------------------------------------------------------------------------


def test_handlers_inherit_and_replace() -> None:
    class Base(Handler):
        @on(AskLastTransaction)
        def last(self, peer: Peer, message_id: int, message: Message) -> Message:
            return AnswerLastTransaction(b"base____")

        @on(AskNewOIDs)
        def oids(self, peer: Peer, message_id: int, message: Message) -> Message:
            return AnswerNewOIDs([])

    class Derived(Base):
        @on(AskLastTransaction)
        def other(self, peer: Peer, message_id: int, message: Message) -> Message:
            return AnswerLastTransaction(b"derived_")

    base, derived, plain = Base(), Derived(), Handler()
    assert base.table == {Ping: base.ping, AskLastTransaction: base.last, AskNewOIDs: base.oids}
    assert derived.table == {
        Ping: derived.ping,
        AskLastTransaction: derived.other,
        AskNewOIDs: derived.oids,
    }
    assert plain.table == {Ping: plain.ping}


def test_a_method_that_is_overridden_takes_its_messages() -> None:
    class Base(Handler):
        @on(AskNewOIDs)
        def oids(self, peer: Peer, message_id: int, message: Message) -> Message:
            return AnswerNewOIDs([])

    class Derived(Base):
        def oids(self, peer: Peer, message_id: int, message: Message) -> Message:
            return AnswerNewOIDs([bytes(8)])

    derived = Derived()
    assert derived.table[AskNewOIDs] == derived.oids
