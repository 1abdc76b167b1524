"""The resolver and the application believe a database only with a proof (specification 24.43)."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from ZODB.Connection import TransactionMetaData

from neo.client import xa
from neo.client.xa import command
from neo.client.xa.branches import new_xid, witness, xid_prefix
from neo.client.xa.evidence import Fate
from neo.client.xa.joining import Unit
from neo.client.xa.resolving import FORGOTTEN_MAX
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import ZERO_TID, p64, tid_from_time
from neo.protocol.packets import AnswerTransactionInformation, AskTransactionInformation
from tests.support.patience import wait_until
from tests.unit.client.prepared_master import Cluster, clusters
from tests.unit.client.xa.joined import Acts, Bank, Fails, Work, World

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


def test_many_outcomes_of_others_hide_no_contradiction(world: World) -> None:
    """The newest ones come first, and rollbacks are remembered for 30 days."""
    for number in range(FORGOTTEN_MAX + 1):
        for cluster in (world.first, world.second):
            cluster.put(xid_prefix("first") + b"%032x" % number, "rolled back")
    committed_in(world, "second")
    world.second.put(XID, "rolled back")
    other = xid_prefix("first") + b"4567"
    world.first.put(other, "rolled back")
    world.second.put(other, "committed", tid=TID)
    failed = [str(line) for line in resolve(world, world.storage2) if line.failed]
    assert [line.split(":")[0].encode() for line in failed] == [XID, other]


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


@pytest.mark.parametrize("state", ["prepared", "committed", "rolled back"])
def test_coordinators_that_are_each_others_participants_are_named(world: World, state: str) -> None:
    """Also for a day after the transactions that showed it have ended."""
    world.first.put(xid_prefix("second") + b"0123", state, tid=TID)
    for days in (0.9, 1.1):
        now = world.first.now + days * 86400
        lines = xa.resolve(world.storage1, [world.storage2], now=lambda now=now: now)
        words = "warning: second decides about transactions in first"
        assert any(words in str(line) for line in lines) is (days < 1)


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


@pytest.fixture
def orphan(world: World) -> bytes:
    """Return an xid of the application that only the bank holds."""
    world.change_all()
    xid: bytes = world.joined._unit(world.manager.get().extension).xid
    world.manager.abort()
    world.bank.prepared.append(xid)
    return xid


def test_a_coordinator_without_its_last_transaction_is_another_database(
    world: World, orphan: bytes
) -> None:
    """Another cluster of its name, given by mistake, knows no xid: others may have committed it."""
    lacks = ErrorAnswer(ErrorCode.TID_NOT_FOUND, "no")

    def answer(m: AskTransactionInformation) -> AnswerTransactionInformation:
        raise lacks

    world.first.scripted.storages[1].answers[AskTransactionInformation] = answer
    for dry_run in (True, False):
        (line,) = xa.resolve(world.storage1, [world.bank], dry_run=dry_run)
        assert line.failed and "it is another database than the coordinator" in str(line)
    assert world.bank.prepared == [orphan] and world.first.decisions == []
    lines = resolve(world, world.bank, acknowledged=(orphan.decode(),))
    assert not any(line.failed for line in lines) and world.bank.prepared == []


def test_a_coordinator_with_its_last_transaction_rolls_back_what_it_does_not_know(
    world: World, orphan: bytes
) -> None:
    extended(world.first)
    assert not any(line.failed for line in resolve(world, world.bank))
    assert world.bank.prepared == [] and world.first.decisions == [(orphan, False)]


def test_an_xid_without_a_witness_is_settled_as_before(world: World) -> None:
    """An earlier version gave it, or the coordinator was empty."""
    prefix = xid_prefix("first")
    assert witness(prefix + b"0" * 32) is None
    assert witness(new_xid("first", ZERO_TID, b"8 bytes.")) is None
    assert witness(new_xid("first", TID, b"8 bytes.")) == TID
    assert len(new_xid("first", TID, b"8 bytes.")) <= 64, "XA's limit of gtrid"
