"""The resolver and the application believe a database only with a proof (specification 24.43)."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from ZODB.Connection import TransactionMetaData

from neo.client import xa
from neo.client.xa import command
from neo.client.xa.branches import xid_prefix
from neo.client.xa.evidence import Fate
from neo.client.xa.joining import Unit
from neo.protocol.ids import p64, tid_from_time
from neo.protocol.packets import AnswerTransactionInformation, AskTransactionInformation
from tests.support.patience import wait_until
from tests.unit.client.joined import Acts, Bank, Fails, Work, World
from tests.unit.client.prepared_master import Cluster, clusters

XID = xid_prefix("first") + b"0123"
TID = p64(1600)
PROOF = "account 7 of bank 3"


class ProvingWork(Work):
    def proof(self) -> str:
        return PROOF


class ProvingBank(Bank):
    """A bank that says of all transactions that it does not hold that their fate is this one."""

    tells: Fate | Exception = Fate.COMMITTED

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str | None] = []

    def begin(self, xid: bytes) -> ProvingWork:
        return ProvingWork(self, xid)

    def fate(self, xid: bytes, proof: str | None, decided: float) -> Fate:
        self.asked.append(proof)
        if isinstance(self.tells, Exception):
            raise self.tells
        return self.tells


@pytest.fixture
def world() -> Iterator[World]:
    with clusters("first", "second") as found:
        yield World(found)


def extended(cluster: Cluster, **extension: Any) -> None:
    """Let the transactions of a cluster have this extension."""
    packed = TransactionMetaData("", "", extension).extension_bytes
    cluster.scripted.storages[1].answers[AskTransactionInformation] = lambda m: (
        AnswerTransactionInformation(m.tid, b"", b"", packed, False, [])
    )


def committed_in(world: World, *names: str) -> None:
    """Let the coordinator have committed a transaction of these databases."""
    world.first.put(XID, "committed", 5.0, TID)
    extended(
        world.first,
        xid=XID.decode(),
        xid_branches=["first", *names],
        xid_databases={"bank": PROOF},
    )


def resolve(world: World, *branches: Any, acknowledged: tuple[str, ...] = ()) -> list[xa.Settled]:
    return xa.resolve(
        world.storage1,
        branches,
        now=lambda: world.first.now,
        acknowledged=acknowledged,
    )


@pytest.mark.parametrize(
    "tells",
    [Fate.ROLLED_BACK, Fate.FOREIGN, Fate.FORGOTTEN, RuntimeError("server is starting")],
    ids=str,
)
def test_an_outcome_is_kept_until_the_database_proves_it(
    world: World, tells: Fate | Exception
) -> None:
    committed_in(world, "bank")
    bank = ProvingBank()
    bank.tells = tells
    for _ in range(2):
        (line,) = resolve(world, bank)
        assert line.failed and (str(tells) if isinstance(tells, Exception) else tells.value) in str(
            line
        )
    assert world.first.states() == {XID: "committed"} and bank.asked == [PROOF] * 2
    bank.tells = Fate.COMMITTED
    assert resolve(world, bank) == [] and world.first.states() == {}


def test_what_was_prepared_without_a_proof_can_be_settled(world: World) -> None:
    committed_in(world, "bank")
    bank = ProvingBank()
    bank.tells = Fate.UNPROVEN
    assert resolve(world, bank) == [] and world.first.states() == {}


def test_a_contradiction_stays_until_it_is_acknowledged(world: World) -> None:
    committed_in(world, "second")
    world.second.put(XID, "rolled back")
    for _ in range(2):
        (line,) = resolve(world, world.storage2)
        assert line.failed and "committed in first, but in second it is rolled back" in str(line)
    (line,) = resolve(world, world.storage2, acknowledged=(XID.decode(),))
    assert not line.failed and str(line).startswith(f"{XID.decode()}: acknowledged: ")
    assert world.states() == [[], []] and resolve(world, world.storage2) == []


def test_a_commit_against_a_rollback_is_a_contradiction(world: World) -> None:
    world.first.put(XID, "rolled back")
    world.second.put(XID, "committed", tid=TID)
    for _ in range(2):
        (line,) = resolve(world, world.storage2)
        assert line.failed and "rolled back in first, but in second it is committed" in str(line)
    resolve(world, world.storage2, acknowledged=(XID.decode(),))
    assert world.states() == [["rolled back"], []], "no slow application can prepare it"
    assert resolve(world, world.storage2) == []


def test_the_command_fails_until_a_contradiction_is_acknowledged(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    committed_in(world, "second")
    world.second.put(XID, "rolled back")

    def uri(cluster: Cluster) -> str:
        return f"neo://{cluster.scripted.name}@{cluster.scripted.masters}"

    options = ["--coordinator", uri(world.first), uri(world.second)]
    assert command.main(options) == 1
    assert f"neoresolve --acknowledge {XID.decode()}" in capsys.readouterr().err
    assert command.main([*options, "--acknowledge", XID.decode()]) == 0
    assert command.main(options) == 0
    assert capsys.readouterr().out.endswith("nothing is in doubt\n")


def test_another_cluster_of_the_name_proves_nothing(world: World) -> None:
    """It knows no outcome of the xid, and its history does not have it."""
    committed_in(world, "second")
    (line,) = resolve(world, world.storage2)
    assert line.failed and "another database" in str(line)
    assert world.first.states() == {XID: "committed"}


def test_a_history_proves_what_a_cluster_has_forgotten(world: World) -> None:
    committed_in(world, "second")
    world.first.rows[XID].tid = tid_from_time(1000.0)
    world.second.history = [tid_from_time(1001.0)]
    extended(world.second, xid=XID.decode())
    assert resolve(world, world.storage2) == [] and world.first.states() == {}


@pytest.mark.parametrize("since", [None, 1000.0])
def test_nothing_is_rolled_back_that_the_history_of_the_coordinator_has(
    world: World, since: float | None
) -> None:
    tid = tid_from_time(999.0)
    world.first.history = [tid]
    extended(world.first, xid=XID.decode())
    world.bank.prepared.append(XID)
    world.bank.recover = lambda: dict.fromkeys(world.bank.prepared, since)  # type: ignore[method-assign]
    (line,) = resolve(world, world.bank)
    assert line.failed and "commit it by hand in bank" in str(line)
    assert world.bank.prepared == [XID] and world.first.decisions == []


def test_coordinators_that_are_each_others_participants_are_named(world: World) -> None:
    world.first.put(xid_prefix("second") + b"0123", "prepared")
    lines = [str(line) for line in resolve(world, world.storage2)]
    assert any("warning: second decides about transactions in first" in line for line in lines)


@pytest.mark.parametrize("tells", [Fate.COMMITTED, Fate.ROLLED_BACK])
def test_a_session_that_is_no_longer_prepared_is_no_success(
    world: World, tells: Fate, caplog: pytest.LogCaptureFixture
) -> None:
    bank = ProvingBank()
    bank.tells = tells
    world.change(world.storage1)
    world.joined.session(bank)
    bank.fails["commit"] = True
    world.manager.commit()
    assert bank.asked == [PROOF]
    words = "is committed in 'first', but in 'bank' it is rolled back"
    if tells is Fate.COMMITTED:  # a resolver was faster
        wait_until(world.forgotten, "the outcome is not forgotten")
        assert words not in caplog.text
    else:
        world.storage1.sync()
        assert world.states() == [["committed"], []] and words in caplog.text


def test_a_commit_by_hand_of_what_is_rolled_back_is_named(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    bank = ProvingBank()
    world.change(world.storage1)
    world.joined.session(bank)
    bank.fails["rollback"] = False
    Acts(world.manager, "tpc_vote", bank.prepared.clear, key="~~")
    Fails(world.manager, "tpc_vote", key="~~~")
    world.fails(RuntimeError)
    assert "is rolled back in 'first', but in 'bank' it is committed" in caplog.text
    world.storage1.sync()
    assert world.states() == [["rolled back"], []]


def test_the_proofs_of_sessions_are_kept_with_the_decision(world: World) -> None:
    world.change(world.storage1)
    world.joined.session(ProvingBank())
    world.manager.commit()
    extension = TransactionMetaData("", "", world.first.metadata().extension).extension
    assert extension["xid_databases"] == {"bank": PROOF}


def test_an_acknowledgement_of_nothing_fails(world: World) -> None:
    (line,) = resolve(world, acknowledged=("neo-xa-nothing",))
    assert line.failed and str(line) == "neo-xa-nothing: there is no contradiction to acknowledge"


def test_a_second_interrupt_leaves_no_transaction_behind(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    world.change_all()
    world.interrupted = True
    monkeypatch.setattr(Unit, "vote", interrupted)
    monkeypatch.setattr(Unit, "abort", interrupted)
    with pytest.raises(KeyboardInterrupt):
        world.manager.commit()
    monkeypatch.undo()
    world.manager.abort()
    gc.collect()
    kept = [*world.storage1._transactions, *world.storage2._transactions]
    assert all(id(metadata) in kept for metadata in world.joined._units)


def test_a_session_without_savepoints_says_what_to_do(world: World) -> None:
    world.joined.session(world.bank)
    savepoint = world.manager.savepoint()
    with pytest.raises(Exception, match="abort the whole transaction, or give the session"):
        savepoint.rollback()
    world.manager.abort()
