"""The tables of states in the specification say what the master does (specification 3.12, 4.4, 4.9)."""

from __future__ import annotations

from pathlib import Path

import pytest

from neo.master.states import ADMITTED, HEARS_OF, TRANSITIONS
from neo.protocol.enums import ClusterState, NodeType

PAGES = Path(__file__).parents[3] / "docs" / "specification"
TYPES = {
    "admin node": NodeType.ADMIN,
    "client": NodeType.CLIENT,
    "master": NodeType.MASTER,
    "storage node": NodeType.STORAGE,
}


def rows(page: str, rule: str) -> list[list[str]]:
    """Return the cells of the table of a rule, without its head."""
    text = (PAGES / page).read_text("utf-8")
    of_rule = text.split(f"\n**{rule}** ")[1].split("\n**")[0]
    lines = [line for line in of_rule.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def states(names: str) -> list[ClusterState]:
    return [ClusterState[name] for name in names.split(", ")]


def types(names: str) -> frozenset[NodeType]:
    return frozenset(TYPES[name.removesuffix("s")] for name in names.split(", ") if name != "none")


def test_transitions_are_those_of_the_page() -> None:
    said = {
        (old, new)
        for before, after, _ in rows("04-recovery.md", "4.9")
        for old in states(before)
        for new in states(after)
    }
    assert said == {(old, new) for (old, _), new in TRANSITIONS.items()}


def test_nodes_are_admitted_as_the_page_says() -> None:
    said = {
        state: types(admitted)
        for names, admitted in rows("03-identification.md", "3.12")
        for state in states(names)
    }
    assert said == ADMITTED
    assert said.keys() == set(ClusterState)


@pytest.mark.parametrize("listener", [NodeType.ADMIN, NodeType.STORAGE, NodeType.CLIENT])
def test_nodes_hear_of_the_types_that_the_page_says(listener: NodeType) -> None:
    said = [
        heard for names, heard in rows("04-recovery.md", "4.4") if listener in types_or_none(names)
    ]
    assert [types(heard) for heard in said] == [HEARS_OF[listener]]


def types_or_none(names: str) -> frozenset[NodeType]:
    """The row of a client that is the master of a backup is not one of types."""
    return frozenset() if "master of a backup" in names else types(names)
