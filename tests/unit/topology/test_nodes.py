"""The node table, and the masters to try."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neo.protocol.enums import NodeState, NodeType
from neo.protocol.ids import nid_namespace
from neo.protocol.packets import NodeRow, NotPrimaryMaster
from neo.topology.masters import PASSED_OVER, MasterCandidates, MasterListFile
from neo.topology.nodes import Node, NodeTable

ONE, TWO, THREE = ("127.0.0.1", 1), ("127.0.0.1", 2), ("::1", 3)

KNOWN_STATES = st.sampled_from([NodeState.DOWN, NodeState.RUNNING, NodeState.PENDING])
#: Storages with ids of their own and an address made from it, as a master tells them.
ROWS = st.builds(
    lambda nid, state, stamp: (NodeType.STORAGE, ("10.0.0.1", nid), nid, state, stamp),
    st.integers(1, 8),
    KNOWN_STATES | st.just(NodeState.UNKNOWN),
    st.none() | st.floats(0, 2e9),
)


@given(st.lists(st.lists(ROWS, max_size=6), max_size=6))
def test_the_table_is_what_was_last_said_of_each_node(updates: list[list[NodeRow]]) -> None:
    """Specification 4.5."""
    table = NodeTable()
    model: dict[int, NodeRow] = {}
    for number, rows in enumerate(updates):
        changed = table.update(float(number), rows)
        for row in rows:
            assert row[2] is not None
            if row[3] is NodeState.UNKNOWN:
                model.pop(row[2], None)
            else:
                model[row[2]] = row
        assert {node.nid for node in changed} <= {row[2] for row in rows}
    assert sorted(node.row() for node in table) == sorted(model.values())
    for nid, row in model.items():
        assert table.get(nid) is table.by_address(NodeType.STORAGE, row[1])
    assert table.timestamp == max(0, len(updates) - 1)


@given(st.lists(st.sampled_from(NodeType), max_size=30))
def test_free_ids_are_free_and_of_the_right_namespace(kinds: list[NodeType]) -> None:
    table = NodeTable()
    for kind in kinds:
        nid = table.free_nid(kind)
        assert table.get(nid) is None
        table.add(Node(kind, nid))
    for kind in NodeType:
        nids = [node.nid for node in table.of_type(kind)]
        assert nids == [nid_namespace(kind) + 1 + i for i in range(len(nids))]


def test_a_master_known_by_its_address_gets_its_id_later() -> None:
    """Specification 4.1, 4.5."""
    table = NodeTable()
    master = table.add(Node(NodeType.MASTER, None, ONE))
    (changed,) = table.update(1.0, [(NodeType.MASTER, ONE, -5, NodeState.RUNNING, None)])
    assert changed is master
    assert table.get(-5) is master
    assert len(list(table)) == 1


def test_addresses_belong_to_a_type() -> None:
    table = NodeTable()
    table.add(Node(NodeType.MASTER, -1, ONE))
    storage = table.add(Node(NodeType.STORAGE, 1, ONE))
    assert table.by_address(NodeType.STORAGE, ONE) is storage
    assert table.by_address(NodeType.STORAGE, None) is None
    assert table.by_address(NodeType.CLIENT, ONE) is None


def test_two_nodes_never_have_one_id() -> None:
    table = NodeTable()
    table.add(Node(NodeType.STORAGE, 1))
    other = table.add(Node(NodeType.STORAGE, 2))
    with pytest.raises(AssertionError):
        table.set_nid(other, 1)
    with pytest.raises(AssertionError):
        table.add(Node(NodeType.STORAGE, 2))
    table.set_nid(other, 3)
    assert (table.get(2), table.get(3)) == (None, other)


def test_forgetting_a_node_that_was_never_known_is_nothing() -> None:
    """Specification 4.5."""
    table = NodeTable()
    assert table.update(1.0, [(NodeType.STORAGE, ONE, 4, NodeState.UNKNOWN, None)]) == []


def test_nodes_may_be_removed_while_they_are_looked_at() -> None:
    table = NodeTable()
    for nid in (1, 2, 3):
        table.add(Node(NodeType.STORAGE, nid))
    for node in table:
        table.remove(node)
    assert list(table) == []


def test_the_timestamp_never_goes_back() -> None:
    table = NodeTable()
    table.update(5.0, [])
    table.update(3.0, [])
    assert table.timestamp == 5.0


# -- masters ---------------------------------------------------------------------------------------


def test_masters_in_turn() -> None:
    masters = MasterCandidates([ONE, TWO, ONE])
    assert [masters.take() for _ in range(5)] == [ONE, TWO, ONE, TWO, ONE]


def test_the_master_that_a_secondary_points_to_is_next_and_once() -> None:
    masters = MasterCandidates([ONE, TWO])
    assert masters.take() == ONE
    assert masters.learn(NotPrimaryMaster(1, [ONE, THREE]))
    assert [masters.take() for _ in range(4)] == [THREE, ONE, TWO, THREE]


@pytest.mark.parametrize("primary", [None, -1, 2, 2**31])
def test_a_secondary_that_knows_no_primary_tells_of_other_masters(primary: int | None) -> None:
    """Specification 4.36."""
    masters = MasterCandidates([ONE])
    assert not masters.learn(NotPrimaryMaster(primary, [ONE, TWO]))
    assert [masters.take() for _ in range(3)] == [ONE, TWO, ONE]


def test_a_master_that_was_silent_is_passed_over_for_a_while() -> None:
    """Specification 4.38."""
    masters = MasterCandidates([ONE, TWO, THREE])
    masters.silent(ONE)
    assert [masters.take() for _ in range(2 * PASSED_OVER)] == [TWO, THREE] * PASSED_OVER
    assert masters.take() == ONE
    masters.silent(TWO)
    assert masters.learn(NotPrimaryMaster(1, [ONE, TWO, THREE]))
    assert masters.take() == TWO


def test_if_all_masters_were_silent_they_are_tried_in_turn() -> None:
    masters = MasterCandidates([ONE, TWO])
    masters.silent(ONE)
    masters.silent(TWO)
    assert {masters.take() for _ in range(2 + PASSED_OVER)} == {ONE, TWO}
    alone = MasterCandidates([ONE])
    alone.silent(ONE)
    assert alone.take() == ONE


def test_no_master_at_all() -> None:
    with pytest.raises(ValueError, match="no master is configured: set 'masters'"):
        MasterCandidates([])


def test_master_list_file(tmp_path: Path) -> None:
    """Specification 4.40."""
    path = tmp_path / "masters.json"
    file = MasterListFile(str(path))
    assert file.load() == []
    file.save([ONE, THREE])
    assert file.load() == [ONE, THREE]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", ["", "{", "5", '[["a"]]', '["ab", "c"]', '[["h", "port"]]', "\xff"])
def test_a_broken_master_list_file_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "masters.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(ValueError, match=r"masters.json is not a list of \[host, port\]"):
        MasterListFile(str(path)).load()


def test_the_id_of_a_storage_node_that_was_dropped_is_not_given_again() -> None:
    """Specification 3.16."""
    table = NodeTable()
    first = table.add(Node(NodeType.STORAGE, 1))
    last = table.add(Node(NodeType.STORAGE, 2))
    client = table.add(Node(NodeType.CLIENT, table.free_nid(NodeType.CLIENT)))
    for node in (first, last, client):
        table.remove(node)
    assert table.free_nid(NodeType.STORAGE) == 3
    # Whose ids mean nothing once they are gone.
    assert table.free_nid(NodeType.CLIENT) == client.nid
