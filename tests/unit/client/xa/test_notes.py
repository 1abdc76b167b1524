"""The coordinator's prepared transaction notes what proves the parts of others (specification 24.51)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from neo.client import xa
from neo.client.xa.branches import xid_prefix
from neo.client.xa.evidence import note, noted
from neo.protocol.ids import p64
from neo.protocol.packets import AskPrepareTransaction
from tests.unit.client.prepared_master import clusters
from tests.unit.client.xa.joined import Work, World

XID = xid_prefix("first") + b"0123"
PROOF = "account 7 of bank 3"


class Proves(Work):
    def proof(self) -> str:
        return PROOF


@pytest.fixture
def world() -> Iterator[World]:
    with clusters("first", "second") as found:
        yield World(found)


def test_the_text_of_what_is_prepared_has_the_proofs(world: World) -> None:
    world.bank.begin = lambda xid: Proves(world.bank, xid)  # type: ignore[method-assign]
    world.manager.get().note("x" * 2000)
    world.change_all()
    world.manager.commit()
    (asked,) = world.first.scripted.master.asked(AskPrepareTransaction)
    assert asked.text.startswith(b"xxx") and len(asked.text) == 1000
    assert noted(asked.text.decode()) == {"bank": PROOF}


@pytest.mark.parametrize(
    "text", ["", "jo: buys", ' xid_databases={"bank": 1}', " xid_databases=[1"]
)
def test_a_text_without_proofs_has_none(text: str) -> None:
    assert noted(text) == {}


def test_the_last_note_counts() -> None:
    """An application's description is no proof."""
    text = b'jo xid_databases={"bank": "forged"}' + note({"bank": PROOF})
    assert noted(text.decode()) == {"bank": PROOF}


def test_a_note_that_is_too_long_is_left_out() -> None:
    assert note({}) == b"" and note({"bank": "x" * 1000}) == b""


@pytest.mark.parametrize("acknowledged", [False, True])
def test_what_another_cluster_committed_is_not_rolled_back(
    world: World, acknowledged: bool
) -> None:
    world.first.put(XID, "prepared", 100.0)
    world.second.put(XID, "committed", tid=p64(1600))
    lines = xa.resolve(
        world.storage1,
        [world.storage2],
        now=lambda: world.first.now,
        acknowledged=[XID.decode()] if acknowledged else [],
    )
    assert any("not decided in first, but in second it is committed" in str(x) for x in lines)
    assert any(line.failed for line in lines) is not acknowledged
    assert world.first.states() == {XID: "rolled back" if acknowledged else "prepared"}
