"""Commands about masters: add, drop, stop, hand over."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from neo.node.known_masters import RememberedMasters
from neo.protocol.enums import ClusterState, NodeState, NodeType
from neo.protocol.packets import (
    AddPendingNodes,
    AnswerElection,
    AskElection,
    NotPrimaryMaster,
    Ping,
    RequestIdentification,
    SetClusterState,
    SetNodeState,
    SetPrimary,
)
from neo.topology.masters import MasterListFile
from tests.support.remote import Remote, error_of
from tests.unit.master.changing_masters import M1, admin, states
from tests.unit.master.masters import Masters


@pytest.fixture
def three() -> Masters:
    return Masters.elected()


def election(masters: Masters) -> AnswerElection:
    answer = admin(masters).ask(AskElection()).result()
    assert isinstance(answer, AnswerElection)
    return answer


def not_primary(masters: Masters, which: int) -> tuple[NotPrimaryMaster, int | None]:
    """Return the answer of a master to a node that looks for the primary, and its message id."""
    remote = Remote.connect(masters.core(which))
    remote.ask(Ping())  # the ids of the request and of the answer are not the same by chance
    remote.ask(RequestIdentification(NodeType.CLIENT, None, None, "test", None, {}))
    answer = remote.take(NotPrimaryMaster)
    assert remote.closed
    return answer, remote.ids[id(answer)]


def test_a_secondary_names_the_primary_in_a_notification_with_its_own_number(
    three: Masters,
) -> None:
    """Specification 2.22, 4.36."""
    (first,) = three.serving()
    for other in three.others():
        answer, message_id = not_primary(three, other)
        assert answer == NotPrimaryMaster(first, three.addresses)
        assert message_id == 0


def test_a_secondary_that_hears_no_primary_names_none(three: Masters) -> None:
    """Specification 4.36."""
    (first,) = three.serving()
    three.processes[first].kill()
    three.processes[(first + 1) % 3].kill()
    three.run(10)
    answer, _ = not_primary(three, (first + 2) % 3)
    assert answer == NotPrimaryMaster(None, three.addresses)


def test_a_peer_of_another_cluster_is_refused_by_all_masters(three: Masters) -> None:
    for core in three.cores():
        remote = Remote.connect(core)
        asked = remote.ask(RequestIdentification(NodeType.CLIENT, None, None, "other", None, {}))
        assert error_of(asked).message.startswith("invalid cluster name: this is 'test'")


def test_the_election_is_shown(three: Masters) -> None:
    """Specification 19.29."""
    three.processes[(three.serving()[0] + 1) % 3].kill()
    three.run(4)
    answer = election(three)
    assert (answer.epoch, answer.tid, answer.ptid) == (1, 1, None)
    assert 0 < answer.lease <= 2
    assert sorted(row[2] for row in answer.master_list) == ["primary", "secondary", "secondary"]
    assert sorted(row[4] for row in answer.master_list) == ["", "", "is not heard"]
    assert sorted(states(three).values(), key=str) == [
        NodeState.DOWN, NodeState.RUNNING, NodeState.RUNNING,
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(12))
def test_the_primary_hands_over_at_once(seed: int) -> None:
    """Specification 19.13, 19.27."""
    three = Masters(3, seed)
    three.platters[seed % 3].sync_seconds = 0.05 * (seed % 4)  # this one learns decisions late
    three.start()
    first = three.until_serving()
    three.run(1 if seed < 6 else 10)  # just after its epoch began, or long after
    successor = (first + 1 + seed % 2) % 3
    asked = admin(three).ask(SetPrimary(M1 + successor))
    assert asked.result().message == f"M{successor + 1} becomes the primary master"
    before = three.world.now
    assert three.until_serving(but=first) == successor
    assert three.world.now - before < 1.0
    three.run(10)
    assert three.serving() == [successor]


def test_a_fourth_master_waits_to_be_added_then_votes(caplog: pytest.LogCaptureFixture) -> None:
    """Specification 19.2, 19.8, 19.28."""
    caplog.set_level(logging.INFO)
    masters = Masters.elected(4, configured=3)
    masters.start(3)
    masters.run(5)
    assert states(masters)[4] is NodeState.PENDING
    assert masters.core(3).member.log is None
    assert "the other masters have a log without this one, which waits for neoctl add" in caplog.text
    asked = admin(masters).ask(AddPendingNodes([M1 + 3]))
    masters.run(5)
    assert asked.result().message == "Nodes added: M4"
    assert states(masters)[4] is NodeState.RUNNING
    log = masters.core(3).member.log
    assert log is not None and not log.engine.learns
    primary = masters.serving()[0]
    masters.processes[(primary + 1) % 3].kill()
    masters.run(5)
    assert masters.serving() == [primary]  # 3 of 4
    masters.processes[3].kill()
    masters.run(5)
    assert masters.serving() == []  # 2 of 4
    masters.processes[3].start()
    masters.until_serving()


def test_a_master_that_was_added_is_shown_to_learn_until_it_votes() -> None:
    """Specification 19.29."""
    masters = Masters.elected(4, configured=3)
    masters.start(3)
    masters.run(5)
    admin(masters).ask(AddPendingNodes([M1 + 3]))
    notes = []
    for _ in range(100):
        masters.run(0.05)
        rows = {row[0]: row for row in election(masters).master_list}
        log = masters.core(3).member.log
        if log is None or log.engine.learns:
            refused = error_of(admin(masters).ask(SetPrimary(M1 + 3))).message
            notes.append((rows[M1 + 3][4], refused))
    assert notes and {note for note, _ in notes[1:]} == {"learns the log, and does not vote yet"}
    assert all("does not vote yet" in refused for _, refused in notes[1:])
    assert rows[M1 + 3][4] == ""


def test_a_lost_master_is_dropped_and_another_takes_its_place() -> None:
    """Specification 19.28."""
    masters = Masters.elected(4, configured=3)
    (primary,) = masters.serving()
    lost = (primary + 1) % 3
    masters.processes[lost].kill()
    remote = admin(masters)
    assert "runs" in error_of(remote.ask(SetNodeState(M1 + lost, NodeState.UNKNOWN))).message
    masters.run(4)
    asked = remote.ask(SetNodeState(M1 + lost, NodeState.UNKNOWN))
    masters.run(1)
    assert asked.result().message == "node permanently removed"
    assert lost + 1 not in states(masters)
    masters.start(3)
    masters.run(3)
    asked = admin(masters).ask(AddPendingNodes([M1 + 3]))
    masters.run(10)
    assert asked.result().message == "Nodes added: M4"
    masters.processes[primary].kill()
    masters.until_serving(but=primary)


def test_no_master_is_added_without_a_majority_that_votes_already() -> None:
    """A new master learns the log first, and the log must grow meanwhile (specification 19.28)."""
    masters = Masters.elected(4, configured=3)
    (primary,) = masters.serving()
    lost = (primary + 1) % 3
    masters.processes[lost].kill()
    masters.start(3)
    masters.run(4)
    refused = admin(masters).ask(AddPendingNodes([M1 + 3]))
    assert "2 of 4 masters would vote, which is no majority" in error_of(refused).message
    masters.processes[lost].start()
    masters.run(4)
    added = admin(masters).ask(AddPendingNodes([M1 + 3]))
    masters.run(4)
    assert added.result().message == "Nodes added: M4"
    masters.processes[masters.serving()[0]].kill()
    masters.run(8)
    assert masters.serving()


def test_a_secondary_is_stopped_on_request(three: Masters) -> None:
    """Specification 19.28."""
    primary = three.serving()[0]
    other = (primary + 1) % 3
    asked = admin(three).ask(SetNodeState(M1 + other, NodeState.DOWN))
    assert asked.result().message == "State changed"
    three.run(0.1)
    assert three.processes[other].exit_code == 0


def test_all_masters_end_with_the_cluster(three: Masters) -> None:
    """Specification 19.30."""
    admin(three).ask(SetClusterState(ClusterState.STOPPING)).result()
    three.run(0.2)
    assert [process.exit_code for process in three.processes] == [0, 0, 0]


def test_masters_are_added_one_at_a_time(three: Masters) -> None:
    asked = admin(three).ask(AddPendingNodes([M1 + 3, M1 + 4]))
    assert error_of(asked).message.startswith("masters are added one at a time")


def test_the_members_are_remembered_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "masters.json"
    masters = Masters(3, configured=2)
    masters.remembered[0] = RememberedMasters(str(path))
    masters.start(0, 1)
    masters.until_serving()
    masters.run(1)
    assert MasterListFile(str(path)).load() == masters.addresses[:2]
    masters.start(2)
    masters.run(1)
    admin(masters).ask(AddPendingNodes([M1 + 2]))
    masters.run(1)
    assert MasterListFile(str(path)).load() == masters.addresses
