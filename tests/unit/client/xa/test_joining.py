"""Transactions of several databases: at each step that fails, all commit or none does (decision 38)."""

from __future__ import annotations

from collections.abc import Iterator
from pickle import loads
from typing import Any

import pytest
import transaction
from transaction.interfaces import TransactionFailedError
from ZODB.MappingStorage import MappingStorage
from ZODB.POSException import StorageTransactionError

from neo.client import xa
from neo.client.commit.prepared import PreparedTransaction
from neo.client.errors import ConfigurationError, OutcomeUnknownError, TransactionLostError
from neo.client.xa.joining import Unit
from neo.protocol.enums import ErrorCode
from neo.protocol.packets import (
    AbortTransaction,
    AnswerStoreObject,
    AskBeginTransaction,
    AskFinishPrepared,
    AskFinishTransaction,
    AskPrepareTransaction,
    AskStoreObject,
    AskStoreTransaction,
)
from tests.support.patience import wait_until
from tests.unit.client.boundaries import interrupt
from tests.unit.client.committing import OID, refusing
from tests.unit.client.peers import in_threads
from tests.unit.client.prepared_master import clusters
from tests.unit.client.xa.joined import Acts, Fails, Work, World, Writes

#: Of so many points at which an exception from outside may come, one is tried: with 1, it takes 20 s.
POINTS = 11


class Database:
    """Stands for ZODB's, which distributes invalidations."""

    def __init__(self) -> None:
        self.told: list[tuple[bytes, Any]] = []

    def invalidate(self, tid: bytes, oids: Any) -> None:
        self.told.append((tid, list(oids)))

    def invalidateCache(self) -> None: ...

    def untransform_record_data(self, data: bytes) -> bytes:
        return data

    transform_record_data = untransform_record_data


@pytest.fixture
def world() -> Iterator[World]:
    with clusters("first", "second") as found:
        yield (world := World(found))
        world.check_nothing_is_left()


@pytest.fixture
def hasty() -> Iterator[World]:
    """Return a world whose storages give up soon."""
    with clusters("first", "second", wait_timeout=0.1) as found:
        yield (world := World(found))
        world.check_nothing_is_left()


def test_both_databases_prepare_and_the_coordinator_commits_first(world: World) -> None:
    """Specification 16.35."""
    order: list[str] = []
    for cluster, name in ((world.first, "first"), (world.second, "second")):
        for message in (AskPrepareTransaction, AskFinishPrepared):
            answer = cluster.scripted.master.answers[message]

            def noted(m: Any, answer: Any = answer, name: str = name) -> Any:
                order.append(f"{type(m).__name__} {name}")
                return answer(m)

            cluster.scripted.master.answers[message] = noted
    writes = world.change()
    world.manager.commit()
    assert order == [
        "AskPrepareTransaction first",
        "AskPrepareTransaction second",
        "AskFinishPrepared first",
        "AskFinishPrepared second",
    ]
    assert all(w.tid for w in writes)
    (xid,) = world.first.prepares()
    assert world.second.prepares() == [xid] and xid.startswith(b"neo-xa-")
    wait_until(world.forgotten, "the outcome is not forgotten")


def test_people_find_the_xid_and_all_databases_in_the_transaction(world: World) -> None:
    world.change_all()
    world.manager.commit()
    for cluster in (world.first, world.second):
        assert loads(cluster.metadata().extension) == {
            "xid": world.first.prepares()[0].decode(),
            "xid_branches": ["bank", "first", "second"],
        }


def test_one_database_is_committed_as_if_nothing_was_joined(world: World) -> None:
    for storage, cluster in ((world.storage1, world.first), (world.storage2, world.second)):
        world.change(storage)
        world.manager.commit()
        asked = cluster.scripted.master.asked(AskPrepareTransaction, AskFinishTransaction)
        assert [type(m) for m in asked] == [AskFinishTransaction]
        assert cluster.metadata().extension == b""


def test_a_session_alone_is_committed_in_one_phase(world: World) -> None:
    session = world.joined.session(world.bank)
    assert world.joined.session(world.bank) is session, "one for the whole transaction"
    world.manager.commit()
    assert world.bank.log == ["commit"]
    world.joined.session(world.bank)
    world.manager.abort()
    assert world.bank.log == ["commit", "rollback"]


def test_a_session_that_a_savepoint_rolled_back_is_not_used_again(world: World) -> None:
    """Its connection may serve another thread already, and nothing would commit what follows."""
    savepoint = world.manager.get().savepoint()
    first = world.joined.session(world.bank)
    savepoint.rollback()
    assert world.joined.session(world.bank) is not first
    world.change(world.storage1)
    world.manager.commit()
    assert world.bank.log == ["rollback", "prepare", "commit"]
    wait_until(world.forgotten, "the outcome is not forgotten")


def test_no_session_begins_that_the_transaction_does_not_commit(world: World) -> None:
    refused: list[Exception] = []

    def hook(done: bool) -> None:
        with pytest.raises(ValueError, match="expected txn status") as e:
            world.joined.session(world.bank)
        refused.append(e.value)

    world.joined.session(world.bank)
    world.manager.get().addAfterCommitHook(hook)
    world.manager.commit()
    assert len(refused) == 1 and world.bank.log == ["commit", "rollback"]
    world.change()
    Fails(world.manager, "tpc_vote")
    with pytest.raises(RuntimeError):
        world.manager.commit()
    for _ in range(2):
        with pytest.raises(TransactionFailedError):
            world.joined.session(world.bank)
    world.manager.abort()
    assert world.bank.log == ["commit"] + 3 * ["rollback"]


def test_the_coordinator_decides_also_if_its_data_is_not_changed(world: World) -> None:
    world.change(world.storage2)
    world.joined.session(world.bank)
    world.manager.commit()
    (prepare,) = world.first.scripted.master.asked(AskPrepareTransaction)
    assert prepare.stored_list == [] and world.first.decisions == [(prepare.xid, True)]
    assert world.second.decisions == [(prepare.xid, True)]
    assert world.bank.log == ["prepare", "commit"]
    wait_until(world.forgotten, "the outcome is not forgotten")


def test_transactions_of_all_managers_have_one_outcome(world: World) -> None:
    """Web frameworks have a manager for each request. Their transactions share nothing."""
    other = transaction.TransactionManager(explicit=True)
    world.manager.begin()
    for manager in (other, world.manager):
        manager.begin()
        world.change(world.storage2, manager=manager)
        world.joined.session(world.bank, manager)
    for manager in (other, world.manager):
        manager.commit()
    first, second = world.second.prepares()
    assert first != second and world.first.prepares() == [first, second]
    assert world.bank.log == 2 * ["prepare", "commit"]
    wait_until(world.forgotten, "the outcome is not forgotten")


def test_an_extension_that_was_replaced_is_refused(world: World) -> None:
    world.joined.session(world.bank)
    world.change(world.storage1)
    world.manager.get().extension = {"a": 1}
    world.fails(StorageTransactionError, match="use setExtendedInfo")
    assert world.bank.log == ["rollback"]


def test_one_join_serves_all_threads(world: World) -> None:
    world.manager = transaction.ThreadTransactionManager()

    def commit() -> None:
        world.change()
        world.manager.commit()

    assert in_threads(commit, commit, commit) == [None] * 3
    assert sorted(world.first.prepares()) == sorted(world.second.prepares())
    assert len(set(world.first.prepares())) == 3
    wait_until(world.forgotten, "the outcome is not forgotten")


@pytest.mark.parametrize("refusing_one", ["first", "second"])
def test_a_database_that_does_not_prepare_rolls_back_all(world: World, refusing_one: str) -> None:
    """Requirement 12: fail if not all prepares are ok."""
    cluster = world.first if refusing_one == "first" else world.second
    cluster.scripted.master.answers[AskPrepareTransaction] = refusing(
        ErrorCode.INCOMPLETE_TRANSACTION
    )
    world.change()
    world.fails(TransactionLostError)
    assert (world.first.prepares()[0], True) not in world.first.decisions
    assert all(not commit for c in (world.first, world.second) for _, commit in c.decisions)
    wait_until(world.forgotten, "the outcome is not forgotten")


def test_a_master_that_is_lost_while_it_prepares_is_a_reason_to_retry(world: World) -> None:
    """Nothing is decided yet, so nothing can be committed: the outcome is known."""

    def lost(m: AskPrepareTransaction) -> None:
        world.second.scripted.master.peer.close()

    world.second.scripted.master.answers[AskPrepareTransaction] = lost
    world.change()
    world.fails(TransactionLostError, match="master was lost in tpc_prepare")
    (xid,) = world.first.prepares()
    assert world.first.decisions == world.second.decisions == [(xid, False)]


def test_a_vote_that_fails_rolls_back_what_is_prepared(world: World) -> None:
    world.second.scripted.storages[1].answers[AskStoreTransaction] = refusing(
        ErrorCode.INCOMPLETE_TRANSACTION
    )
    world.change()
    world.fails(TransactionLostError)
    assert world.first.decisions == [(world.first.prepares()[0], False)]
    assert world.second.scripted.master.wait_for(AbortTransaction)
    wait_until(world.forgotten, "the outcome is not forgotten")


def test_a_conflict_is_found_before_anything_is_prepared(world: World) -> None:
    world.second.scripted.storages[1].answers[AskStoreObject] = refusing(
        ErrorCode.INCOMPLETE_TRANSACTION
    )
    world.change()
    world.fails(TransactionLostError)
    assert not world.first.prepares() and not world.second.prepares()


def test_a_data_manager_that_fails_to_vote_rolls_back_all(world: World) -> None:
    world.change(world.storage2)
    world.joined.session(world.bank)
    Fails(world.manager, "tpc_vote", key="~~")
    world.fails(RuntimeError, match="broken")
    (xid,) = world.first.prepares()
    assert world.first.decisions == world.second.decisions == [(xid, False)]
    assert world.bank.log == ["prepare", "rollback"]
    wait_until(world.forgotten, "the outcome is not forgotten")


@pytest.mark.parametrize("changed", [True, False], ids=["changed", "coordinator not changed"])
def test_a_decision_without_answer_is_unknown_and_rolls_back_nothing(
    hasty: World, caplog: pytest.LogCaptureFixture, changed: bool
) -> None:
    """The manager calls tpc_abort of all after an exception in tpc_finish. What may be committed in the
    coordinator must stay prepared everywhere else."""
    world = hasty
    world.first.silent = True
    world.change(*([] if changed else [world.storage2]))
    world.joined.session(world.bank)
    world.fails(OutcomeUnknownError, match="neo-xa-")
    assert world.second.decisions == [] and world.states() == [["prepared"], ["prepared"]]
    assert world.bank.log == ["prepare", "leave"] and len(world.bank.prepared) == 1
    xid = world.first.prepares()[0].decode()
    assert f"the outcome of transaction {xid} is not known; neoresolve settles it" in caplog.text
    assert f"transaction {xid} stays prepared in 'second'" in caplog.text
    assert f"transaction {xid} stays prepared in 'bank'" in caplog.text


def test_a_decision_that_a_resolver_forestalled_rolls_back_all(world: World) -> None:
    """The application was slow, and the resolver gave the transaction up."""

    def forestall() -> None:
        world.storage1.rollback_prepared(world.first.prepares()[0])

    world.change_all()
    Acts(world.manager, "tpc_vote", forestall, key="~~")
    world.fails(TransactionLostError, match="was rolled back")
    assert world.second.decisions == [(world.first.prepares()[0], False)]
    assert world.bank.log == ["prepare", "rollback"]


def test_a_database_that_is_away_after_the_decision_is_no_error(
    hasty: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The transaction is committed; the resolver finishes it, and needs the outcome."""
    world = hasty
    world.second.silent = True
    writes = world.change()
    world.joined.session(world.bank)
    world.manager.commit()
    assert world.states() == [["committed"], ["prepared"]] and world.bank.prepared == []
    xid = world.first.prepares()[0].decode()
    words = (
        f"transaction {xid} stays prepared in 'second': the coordinator has committed; neoresolve"
    )
    assert words in caplog.text
    assert writes[1].tid != writes[0].tid
    world.storage1.sync()
    assert world.states()[0] == ["committed"], "not forgotten"


def test_its_objects_are_read_again_by_connections_of_zodb(hasty: World) -> None:
    database = Database()
    hasty.storage2.registerDB(database)
    hasty.second.silent = True
    hasty.change()
    hasty.manager.commit()
    assert (hasty.storage2.lastTransaction(), [OID]) in database.told


def test_a_resolver_in_the_same_process_may_be_faster(world: World) -> None:
    """docs/prepared.md: an application can resolve in a thread of its own, with the same storages."""
    writes = world.change()
    others = [world.storage2, world.bank]
    Acts(world.manager, "tpc_finish", lambda: xa.resolve(world.storage1, others))
    world.manager.commit()
    assert writes[1].storage is world.storage1
    assert writes[0].tid == world.storage2.lastTransaction()
    assert not world.storage2._prepared


def test_a_resolver_in_the_same_process_makes_its_commits_visible(hasty: World) -> None:
    """The master tells all clients but the one that prepared and commits (specification 24.11)."""
    world = hasty
    database = Database()
    world.storage2.registerDB(database)
    world.first.silent = True
    world.change()
    world.fails(OutcomeUnknownError)
    world.first.silent = False
    world.storage1.commit_prepared(world.first.prepares()[0])
    assert xa.resolve(world.storage1, [world.storage2, world.bank])
    tid = world.storage2.lastTransaction()
    assert list(world.second.tids.values()) == [tid] and (tid, [OID]) in database.told


def test_a_failure_of_others_after_the_decision_commits_the_rest(world: World) -> None:
    world.change_all()
    Fails(world.manager, "tpc_finish", key="A")
    world.fails(RuntimeError, match="broken")
    (xid,) = world.first.prepares()
    assert world.second.decisions == [(xid, True)] and world.bank.log == ["prepare", "commit"]
    wait_until(world.forgotten, "the outcome is not forgotten")


@pytest.mark.parametrize("faster", [True, False])
def test_a_session_that_fails_to_commit_is_left_if_it_is_still_prepared(
    world: World, faster: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """If a resolver was faster, the driver raises, too."""
    world.bank.fails["commit"] = faster
    world.change(world.storage1)
    world.joined.session(world.bank)
    world.manager.commit()
    assert ("stays prepared in 'bank'" in caplog.text) is not faster
    if faster:
        wait_until(world.forgotten, "the outcome is not forgotten")
    else:
        world.storage1.sync()
        assert world.states()[0] == ["committed"]


@pytest.mark.parametrize("nevertheless", [True, False])
def test_a_session_that_fails_to_prepare_is_rolled_back(world: World, nevertheless: bool) -> None:
    world.bank.fails["prepare"] = nevertheless
    world.bank.fails["rollback"] = False
    world.change(world.storage1)
    world.joined.session(world.bank)
    world.fails(RuntimeError, match="broken")
    assert world.bank.prepared == [] and world.first.decisions[0][1] is False
    assert ("rollback by xid" in world.bank.log) is nevertheless


def test_an_exception_from_outside_in_the_decision_rolls_back_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decision 28: the request may have been sent, and the coordinator may commit."""
    finish = PreparedTransaction.finish

    def interrupted(self: PreparedTransaction, callback: Any) -> bytes:
        finish(self, callback)
        raise KeyboardInterrupt

    monkeypatch.setattr(PreparedTransaction, "finish", interrupted)
    world.change()
    world.fails(KeyboardInterrupt)
    assert world.states() == [["committed"], ["prepared"]]


def test_an_exception_from_outside_after_the_decision_keeps_the_outcome(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the resolver would roll back what is prepared in the other database."""

    def interrupted(work: Work) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Work, "commit", interrupted)
    world.change(world.storage1)
    world.joined.session(world.bank)
    world.fails(KeyboardInterrupt)
    assert world.bank.log == ["prepare", "leave"]
    world.storage1.sync()
    assert world.states()[0] == ["committed"]


@pytest.mark.parametrize("place", ["storage", "manager"])
def test_a_second_exception_from_outside_rolls_back_nothing_that_is_decided(
    world: World, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Ctrl-C twice: the transaction manager stops in the middle of its calls of tpc_abort."""

    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    world.change_all()
    Acts(world.manager, "tpc_finish", interrupted)
    if place == "storage":
        monkeypatch.setattr(Unit, "abort", interrupted)
    else:
        Acts(world.manager, "tpc_abort", interrupted)
    with pytest.raises(KeyboardInterrupt):
        world.manager.commit()
    monkeypatch.undo()
    world.manager.abort()
    world.interrupted = True
    xid = world.first.prepares()[0]
    assert (xid, False) not in world.second.decisions
    assert world.first.states() == {xid: "committed"}
    assert "rollback" not in world.bank.log


def test_an_exception_from_outside_at_any_point_leaves_one_outcome(world: World) -> None:
    """Decision 28. A resolver finds the rest, and does the same everywhere."""
    log, xid = world.bank.log, b""
    point = 0
    while True:
        world.change()
        world.joined.session(world.bank)
        where = interrupt(world.manager.commit, point)
        if where is None:
            break
        point += POINTS
        world.manager.abort()
        if (asked := world.first.prepares()) and asked[-1] != xid:
            xid = asked[-1]
            xa.resolve(world.storage1, [world.storage2, world.bank], 0.0)
            commits = [(xid, True) in c.decisions for c in (world.first, world.second)]
            commits.append("commit" in log or "commit by xid" in log)
            assert len(set(commits)) == 1, where
            assert world.bank.prepared == [] and "prepared" not in str(world.states()), where
        else:
            assert "commit" not in log, where
        log.clear()
    assert point > 500 and log == ["prepare", "commit"]


def test_nothing_is_committed_before_the_coordinator(world: World) -> None:
    class Late(Writes):
        def sortKey(self) -> str:
            return "~~"

    world.change(world.storage2)
    Late(world.manager, world.storage1)
    world.fails(StorageTransactionError, match="coordinator 'first' must come first")
    (xid,) = world.first.prepares()
    assert world.first.decisions == world.second.decisions == [(xid, False)]


def test_a_database_is_asked_for_locks_when_those_before_are_granted(world: World) -> None:
    """Two transactions that lock in two orders would wait for each other (specification 16.35)."""
    first, second = (c.scripted.storages[1] for c in (world.first, world.second))
    first.answers[AskStoreObject] = lambda m: None
    asked: list[list[Any]] = []

    def grant() -> None:
        first.wait_for(AskStoreObject)
        world.storage2.sync()
        asked.append(second.asked(AskStoreObject))
        first.answer_last(AskStoreObject, AnswerStoreObject(None))

    def commit() -> None:
        world.change()
        world.manager.commit()

    assert in_threads(commit, grant) == [None, None]
    assert asked == [[]] and len(second.asked(AskStoreObject)) == 1


def test_two_connections_to_one_database_cannot_share_an_xid(world: World) -> None:
    world.change(world.storage2, world.storage2, world.storage1)
    world.fails(StorageTransactionError, match="two connections to database 'second'")
    world.change(world.storage2, world.storage2)
    world.manager.commit()
    assert not world.second.prepares()


def test_a_database_is_joined_only_once(world: World) -> None:
    """A second coordination would not know what the first one has prepared, and commit it."""
    with clusters("third") as ((_, storage3),):
        with pytest.raises(ConfigurationError, match="'second' was joined before: call join once"):
            xa.join(world.manager, [storage3, world.storage2], storage3)
        assert not storage3.coordinated
    world.change()
    world.manager.commit()
    wait_until(world.forgotten, "the outcome is not forgotten")


def test_participants_that_make_no_sense_are_refused(world: World) -> None:
    storages = [world.storage1, world.storage2]
    with pytest.raises(ConfigurationError, match="must be a NEO database"):
        xa.join(world.manager, storages, world.bank)
    with pytest.raises(ConfigurationError, match="must be one of the participants"):
        xa.join(world.manager, [world.storage2], world.storage1)
    with pytest.raises(ConfigurationError, match="MappingStorage.* is neither a NEO database nor"):
        xa.join(world.manager, [*storages, MappingStorage("wraps")], world.storage1)
    with pytest.raises(ConfigurationError, match="two participants are named 'first'"):
        xa.join(world.manager, [*storages, world.storage1], world.storage1)
    for name in ("", "bänk", "bank=", "neo://bank", "b" * 65):
        with pytest.raises(ConfigurationError, match="has 1 to 64 letters"):
            xa.DBAPIBranch(name, lambda: None)


def test_a_transaction_begins_only_where_something_is_changed(world: World) -> None:
    world.change(world.storage2)
    world.manager.commit()
    assert not world.first.scripted.master.asked(AskBeginTransaction)
