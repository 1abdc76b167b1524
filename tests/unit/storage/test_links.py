"""Connections between storage nodes (specification 3.29 to 3.36)."""

from __future__ import annotations

import pytest

from neo.protocol.enums import ErrorCode, NodeState, NodeType
from neo.protocol.ids import p64
from neo.protocol.packets import (
    AcceptIdentification,
    AnswerUnfinishedTransactions,
    AskUnfinishedTransactions,
    CloseClient,
    Error,
    NotifyReady,
    NotifyReplicationDone,
    Ping,
    Pong,
    RequestIdentification,
    StartOperation,
)
from neo.storage.links import IDENTIFY_SECONDS, REPLACE_SECONDS
from neo.storage.replication.replicator import USER
from tests.unit.storage.comparing import Compared, comparing
from tests.unit.storage.replicas import (
    OTHER,
    Destination,
    fetching,
    identify,
    reply,
    storage,
    storage_row,
    take_question,
)
from tests.unit.storage.world import OUT, UP, End, World, refused

# -- both dial ------------------------------------------------------------------------------------


def test_who_has_the_smaller_id_accepts_a_crossed_connection(world: World) -> None:
    """Specification 3.30."""
    node = Destination(world)
    node.unfinished(12)
    dialed = world.take_dial()
    source = world.stranger()
    assert identify(source, 2) == AcceptIdentification(NodeType.STORAGE, 1, 2)
    assert dialed.closed
    node.serve(source, 0, 12, {(12, 0): b"a"})
    assert node.master.take(NotifyReplicationDone).max_tid == p64(12)


def test_who_has_the_greater_id_refuses_a_crossed_connection(world: World) -> None:
    """Specification 3.30."""
    master = world.join(nid=3)
    world.notify(master, storage_row(2))
    world.send_table(master, [[(3, OUT), (2, UP)], [(3, UP)]])
    master.send(StartOperation(False))
    master.take(NotifyReady)
    reply(master, AskUnfinishedTransactions, AnswerUnfinishedTransactions(p64(12), []))
    dialed = world.take_dial()
    other = world.stranger()
    assert refused(identify(other, 2)) == (ErrorCode.PROTOCOL_ERROR.value, "already connected")
    assert other.closed and not dialed.closed


def test_who_is_refused_waits_for_the_others_connection(world: World) -> None:
    """Specification 3.30, 3.31: the other dials us, or it would not refuse."""
    node = Destination(world)
    node.unfinished(12)
    refuse(world.take_dial())
    node.serve(accepted(world), 0, 12, {(12, 0): b"a"})
    assert node.master.take(NotifyReplicationDone).max_tid == p64(12)


def test_who_is_refused_and_not_dialed_dials_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Specification 3.31."""
    node = Destination(world)
    node.unfinished(12)
    refuse(world.take_dial())
    world.settle()
    assert not world.host.dialed
    world.host.advance(IDENTIFY_SECONDS)
    assert "S2: it refused" in caplog.text
    world.host.advance(1)
    node.serve(node.source(), 0, 12, {(12, 0): b"a"})
    assert node.master.take(NotifyReplicationDone).max_tid == p64(12)


# -- a second one ----------------------------------------------------------------------------------


def test_what_a_peer_dialed_before_it_accepted_ours_is_refused(world: World, master: End) -> None:
    """Specification 3.34."""
    first = storage(world, master, 2)
    second, answers = dial_again(world)
    pong(first)
    assert refused(answers[0]) == (ErrorCode.PROTOCOL_ERROR.value, "already connected")
    assert second.closed and not first.closed


def test_another_connection_replaces_one_that_was_lost(world: World, master: End) -> None:
    """Specification 3.34."""
    first = storage(world, master, 2)
    second, answers = dial_again(world)
    take_question(first, Ping)
    first.disconnect()
    assert answers[0] == AcceptIdentification(NodeType.STORAGE, 1, 2)
    assert not second.closed


def test_another_connection_replaces_one_that_is_silent(world: World, master: End) -> None:
    """Specification 3.34."""
    first = storage(world, master, 2)
    second, answers = dial_again(world)
    world.host.advance(REPLACE_SECONDS / 2)
    assert not answers and not first.closed
    world.host.advance(REPLACE_SECONDS / 2)
    assert first.closed
    assert answers[0] == AcceptIdentification(NodeType.STORAGE, 1, 2)


def test_who_was_accepted_elsewhere_meanwhile_is_not_accepted(world: World, master: End) -> None:
    """S2 dialed, accepted our connection and dropped its own; we finished, and it closed that, too. Else
    we would ask something on what it dropped (specification 3.35)."""
    first = storage(world, master, 2)
    stale, answers = dial_again(world, waiting=False)
    first.send(CloseClient())
    assert first.closed
    take_question(stale, Ping)
    assert not answers
    stale.disconnect()
    assert identify(world.stranger(), 2) == AcceptIdentification(NodeType.STORAGE, 1, 2)


def test_a_pong_of_before_another_connection_was_made_says_nothing(
    world: World, master: End
) -> None:
    """S2 dialed and said that it waits, then accepted what we had dialed, and dropped its own
    (specification 3.35)."""
    world.notify(master, storage_row(2))
    stale, answers = dial_again(world, waiting=False)
    first = storage(world, master, 2)
    first.send(CloseClient())
    assert first.closed
    pong(stale)
    take_question(stale, Ping)
    assert not answers
    stale.disconnect()
    assert identify(world.stranger(), 2) == AcceptIdentification(NodeType.STORAGE, 1, 2)


def test_who_dials_is_asked_again_when_the_old_connection_is_lost(
    world: World, master: End
) -> None:
    first = storage(world, master, 2)
    second, answers = dial_again(world)
    second.waiting = False
    first.disconnect()
    assert not answers
    pong(second)
    assert answers[0] == AcceptIdentification(NodeType.STORAGE, 1, 2)


def test_who_gave_up_meanwhile_is_not_accepted(world: World, master: End) -> None:
    first = storage(world, master, 2)
    second, answers = dial_again(world)
    second.disconnect()
    first.disconnect()
    assert not answers
    assert identify(world.stranger(), 2) == AcceptIdentification(NodeType.STORAGE, 1, 2)


# -- after CloseClient -----------------------------------------------------------------------------


def test_a_connection_is_used_again_when_the_peer_knows(world: World) -> None:
    """Specification 3.33."""
    checked, other = finished(world)
    checked.check()
    pong(other)
    checked.find_equal()
    assert other.take(CloseClient) == CloseClient()


def test_a_connection_that_the_peer_closes_is_dialed_again_at_once(world: World) -> None:
    """Specification 3.33."""
    checked, other = finished(world)
    checked.check()
    take_question(other, Ping)
    other.disconnect()
    checked.connect(2)
    checked.find_equal()


def test_a_peer_that_returned_is_not_disconnected(world: World) -> None:
    """Specification 3.29, 3.33."""
    node, source = fetching(world)
    source.send(CloseClient())
    assert source.ask(Ping()) == Pong()
    node.serve(source, 0, 12, {})
    node.master.take(NotifyReplicationDone)
    assert source.take(CloseClient) == CloseClient()
    assert not source.closed


def test_nobody_is_kept_who_was_dialed_for_nothing(world: World) -> None:
    """What was to be asked is not wanted any more when the connection comes."""
    node = Destination(world)
    node.unfinished(12)
    world.core.links.release(USER)
    source = world.take_dial()
    reply(source, RequestIdentification, AcceptIdentification(NodeType.STORAGE, 2, 1))
    assert CloseClient() in [message for _, message in source.inbox]
    source.send(CloseClient())
    assert source.closed


# -- the end ---------------------------------------------------------------------------------------


def test_a_storage_that_is_finished_with_us_is_disconnected(world: World, master: End) -> None:
    """Specification 3.32."""
    peer = storage(world, master, 2)
    peer.send(CloseClient())
    assert peer.closed


def test_a_connection_stays_while_we_use_it_ourselves(world: World) -> None:
    """Specification 3.29, 3.32."""
    node, source = fetching(world)
    source.send(CloseClient())
    assert not source.closed
    node.serve(source, 0, 12, {})
    node.master.take(NotifyReplicationDone)
    assert source.closed


def test_a_storage_that_the_master_lost_is_disconnected(world: World, master: End) -> None:
    """Specification 3.36."""
    peer = storage(world, master, 2)
    world.notify(master, storage_row(2, NodeState.DOWN))
    assert peer.closed


def test_an_unknown_storage_is_refused(world: World, master: End) -> None:
    end = world.stranger()
    end.connection.ask(
        RequestIdentification(NodeType.STORAGE, 9, OTHER, "test", None, {}), lambda answer: None
    )
    end._deliver()
    assert end.closed


# -- helpers ---------------------------------------------------------------------------------------


def accepted(world: World) -> End:
    """S2 dials us."""
    end = world.stranger()
    assert identify(end, 2) == AcceptIdentification(NodeType.STORAGE, 1, 2)
    return end


def refuse(dialed: End) -> None:
    """By S2, which dials us."""
    reply(dialed, RequestIdentification, Error(ErrorCode.PROTOCOL_ERROR.value, "already connected"))


def dial_again(world: World, waiting: bool = True) -> tuple[End, list[object]]:
    """S2 dials, although it is connected as far as we know. The list will have the answer.

    ``waiting``: it says that it still wants to be accepted.
    """
    end = world.stranger()
    end.waiting = waiting
    request = RequestIdentification(NodeType.STORAGE, 2, OTHER, "test", 22.0, {})
    return end, end.ask_later(request)


def pong(end: End) -> None:
    reply(end, Ping, Pong())


def finished(world: World) -> tuple[Compared, End]:
    """Everything was compared with S2, which got CloseClient."""
    checked = comparing(world, 2)
    checked.find_equal()
    checked.master.inbox.clear()
    other = checked.others[2]
    assert other.take(CloseClient) == CloseClient()
    return checked, other
