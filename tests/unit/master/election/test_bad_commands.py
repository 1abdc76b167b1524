"""Wrong commands about several masters are refused and change nothing."""

from __future__ import annotations

from typing import Any

import pytest

from neo.protocol.enums import ClusterState, ErrorCode, NodeState
from neo.protocol.ids import parse_nid
from neo.protocol.packets import (
    AddPendingNodes,
    AskElection,
    ForgetTable,
    Request,
    SetClusterState,
    SetNodeState,
    SetPrimary,
)
from tests.support.remote import error_of
from tests.unit.master.changing_masters import admin, states
from tests.unit.master.masters import Masters

DOWN, UNKNOWN, PENDING = NodeState.DOWN, NodeState.UNKNOWN, NodeState.PENDING
A1, M9 = parse_nid("A1"), parse_nid("M9")


class Names:
    """Four masters: P is the primary, R runs, D is down, N was not added. There is no fifth one."""

    def __init__(self) -> None:
        self.masters = Masters(4, configured=3)
        self.masters.start(0, 1, 2)
        primary = self.masters.until_serving()
        self.masters.start(3)
        self.masters.processes[(primary + 1) % 3].kill()
        self.masters.run(5)
        numbers = [primary, (primary + 1) % 3, (primary + 2) % 3, 3]
        self.p, self.d, self.r, self.n = (parse_nid(f"M{number + 1}") for number in numbers)
        self.unknown = M9

    def snapshot(self) -> object:
        election = admin(self.masters).ask(AskElection()).result()
        running = [process.exit_code for process in self.masters.processes]
        members = (election.epoch, election.ptid, [row[:3] for row in election.master_list])
        return members, states(self.masters), self.masters.serving(), running

    def refused(self, message: Request[Any]) -> str:
        """Return the text of the refusal. Nothing else may have happened."""
        before = self.snapshot()
        error = error_of(admin(self.masters).ask(message))
        self.masters.run(1)
        assert error.code is ErrorCode.DENIED, error
        assert self.snapshot() == before, message
        return error.message


@pytest.fixture(scope="module")
def names() -> Names:
    return Names()


def test_there_is_one_of_each_kind(names: Names) -> None:
    assert set(states(names.masters).values()) == {NodeState.RUNNING, DOWN, PENDING}


@pytest.mark.parametrize(
    ("name", "state", "text"),
    [
        ("p", DOWN, "can not kill primary master node"),
        ("p", UNKNOWN, "can not kill primary master node"),
        ("r", DOWN, "cannot be stopped: 1 of 3 masters would vote, which is no majority"),
        ("r", UNKNOWN, "runs: it must be stopped before it is dropped (neoctl kill M"),
        ("d", DOWN, "is already down"),
        ("n", UNKNOWN, "is no master of this cluster: stop its process"),
        *((name, state, "node") for name in "rdn" for state in (NodeState.RUNNING, PENDING)),
    ],
)
def test_stopping_and_dropping(names: Names, name: str, state: NodeState, text: str) -> None:
    """Specification 19.28."""
    assert text in names.refused(SetNodeState(getattr(names, name), state))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("p", "is the primary master already"),
        ("d", "is DOWN: only a running master can take over"),
        ("n", "is PENDING: only a running master can take over"),
        ("unknown", "unknown node"),
    ],
)
def test_handing_over(names: Names, name: str, text: str) -> None:
    """Specification 19.27."""
    assert text in names.refused(SetPrimary(getattr(names, name)))


@pytest.mark.parametrize("name", ["p", "d", "r"])
def test_adding(names: Names, name: str) -> None:
    text = names.refused(AddPendingNodes([getattr(names, name)]))
    assert text.endswith("is a master of this cluster already")


@pytest.mark.parametrize(
    "message",
    [
        *(SetNodeState(M9, state) for state in (DOWN, UNKNOWN)),
        AddPendingNodes([M9]),
        AddPendingNodes([M9, 1]),
        *(SetPrimary(nid) for nid in (A1, 1, 0)),
        ForgetTable(1),
        SetClusterState(ClusterState.VERIFYING),
    ],
    ids=str,
)
def test_what_is_never_obeyed(names: Names, message: Request[Any]) -> None:
    assert names.refused(message)
