"""Admins of a cluster and of its backups: who reports what to whom, and what is said of it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from typing import Any

import pytest

from neo.admin.alerts import CHANGING_LOOKS, LOOK_SECONDS
from neo.admin.health import REFRESH_SECONDS, Examiner
from neo.admin.problems import SYNC_SECONDS
from neo.protocol.enums import CellState, ClusterState, ErrorCode, NodeState, NodeType
from neo.protocol.packets import (
    FEATURE_OURS,
    AcceptIdentification,
    Address,
    AnswerLastTransaction,
    AnswerMonitorInformation,
    AnswerRecovery,
    AnswerSync,
    AskLastTransaction,
    AskMonitorInformation,
    AskRecovery,
    NodeRow,
    NotifyClusterInformation,
    NotifyFeatures,
    NotifyMonitorInformation,
    NotifyNodeInformation,
    NotifyPartitionChanges,
    NotifyUpstreamAdmin,
    RequestIdentification,
    SyncRow,
)
from neo.topology.masters import RETRY_SECONDS
from tests.support.remote import Remote, error_of
from tests.unit.admin.world import NODES, Outbox, World

UPSTREAM: Address = ("127.0.0.1", 7777)
UP, OUT = CellState.UP_TO_DATE, CellState.OUT_OF_DATE
DOWN = NodeState.DOWN
TID = bytes.fromhex("040d24252187ba31")
#: A second later, as tids count.
LATER = (int.from_bytes(TID, "big") + 2**32 // 60).to_bytes(8, "big")
INFO: dict[str, Any] = {
    "cluster_state": ClusterState.BACKINGUP,
    "down": 0,
    "pt_summary": {UP: 8},
}


class Watch(World):
    """The admin of a cluster with one backup, ``bak``, that may be half a second behind."""

    def __init__(self) -> None:
        self.outbox = Outbox()
        super().__init__(("bak",), 0.5, mails=self.outbox)

    def backup(self, name: str = "bak") -> Remote:
        remote = Remote.connect(self.core)
        future = remote.ask(RequestIdentification(NodeType.ADMIN, None, None, name, None, {}))
        assert future.result() == AcceptIdentification(NodeType.ADMIN, None, None)
        return remote

    def last(self, *peers: Remote, tid: bytes = LATER) -> None:
        """Tell the last transaction."""
        for peer in peers or (self.master,):
            peer.answer(peer.take(AskLastTransaction), AnswerLastTransaction(tid))

    def summary(self, backup: Remote | None, tid: bytes | None = TID) -> AnswerMonitorInformation:
        future = self.ctl().ask(AskMonitorInformation())
        self.last()
        if backup is not None:
            if backup.has(AskRecovery):
                backup.answer(backup.take(AskRecovery), AnswerRecovery(1, tid, None))
            self.last(backup)
        answer = future.result()
        assert isinstance(answer, AnswerMonitorInformation)
        return answer


@pytest.fixture
def watch() -> Iterator[Watch]:
    watch = Watch()
    watch.accept()
    yield watch
    assert watch.host.exit_code is None


OWN = "RUNNING; UP_TO_DATE=4; ltid=040d2425"


# -- the admin of the upstream cluster -----------------------------------------------------------


def test_a_backup_that_is_well(watch: Watch) -> None:
    backup = watch.backup()
    backup.send(NotifyMonitorInformation(INFO))
    answer = watch.summary(backup, LATER)
    assert (answer.warning_list, answer.problem_list) == ([], [])
    assert answer.summary.startswith(OWN)
    text = f"\n\nbak\n    BACKINGUP; UP_TO_DATE=8; ltid={LATER.hex()}; lag=0.0"
    assert answer.summary.endswith(text)


@pytest.mark.parametrize(
    ("changes", "tid", "warnings", "problems"),
    [
        pytest.param({}, TID, ["bak"], [], id="late"),
        pytest.param({"pt_summary": {OUT: 2, UP: 6}}, LATER, ["bak"], [], id="cells out of date"),
        pytest.param({"down": 1}, LATER, [], ["bak"], id="a node is down"),
        pytest.param({"cluster_state": ClusterState.RECOVERING}, LATER, [], ["bak"], id="recovers"),
        pytest.param({"cluster_state": ClusterState.RUNNING}, LATER, [], ["bak"], id="no backup"),
    ],
)
def test_severities(
    watch: Watch, changes: dict[str, Any], tid: bytes, warnings: list[str], problems: list[str]
) -> None:
    """Specification 17.21."""
    backup = watch.backup()
    backup.send(NotifyMonitorInformation(INFO))
    backup.send(NotifyMonitorInformation(changes))
    answer = watch.summary(backup, tid)
    assert (answer.warning_list, answer.problem_list) == (warnings, problems)
    assert answer.summary.endswith("; lag=1.0") is (tid == TID)


@pytest.mark.parametrize("state", [None, *ClusterState])
def test_only_a_backup_at_work_is_asked_how_far_it_is(
    watch: Watch, state: ClusterState | None
) -> None:
    """A master of another implementation that recovers does not survive the question
    (specification 2.28, 17.24)."""
    backup = watch.backup()
    if state is not None:
        backup.send(NotifyMonitorInformation(INFO | {"cluster_state": state}))
    watch.ctl().ask(AskMonitorInformation())
    assert backup.has(AskLastTransaction)
    assert backup.has(AskRecovery) is (state is ClusterState.BACKINGUP)


def test_a_backup_that_does_not_report_is_a_problem(watch: Watch) -> None:
    answer = watch.summary(None)
    assert answer.problem_list == ["bak"]
    assert "\n\nbak\n    not connected" in answer.summary
    watch.backup().lose()
    assert watch.summary(None).problem_list == ["bak"]


def test_a_backup_that_does_not_answer_does_not_silence_us(watch: Watch) -> None:
    """Specification 17.19."""
    watch.backup().send(NotifyMonitorInformation(INFO))
    future = watch.ctl().ask(AskMonitorInformation())
    watch.last()
    assert not future.done
    watch.host.advance(REFRESH_SECONDS)
    assert future.result().problem_list == ["bak"]


def test_others_may_not_report(watch: Watch) -> None:
    """Specification 3.37."""
    remote = Remote.connect(watch.core)
    error = error_of(
        remote.ask(RequestIdentification(NodeType.ADMIN, None, None, "other", None, {}))
    )
    assert error.code is ErrorCode.PROTOCOL_ERROR and "'other'" in error.message
    assert remote.closed


def test_another_connection_of_a_backup_replaces_the_first(watch: Watch) -> None:
    """Specification 3.37."""
    first = watch.backup()
    second = watch.backup()
    assert first.closed and not second.closed


def test_the_master_is_told_which_backups_are_watched() -> None:
    request = Watch().master.take(RequestIdentification)
    assert request.extra["backup"] == ["bak"]


# -- mails -------------------------------------------------------------------------------------


def look(watch: Watch) -> None:
    watch.host.advance(LOOK_SECONDS)
    if watch.master.has(AskLastTransaction):
        watch.last()


def test_a_problem_that_lasts_is_mailed_once_and_its_end_too(watch: Watch) -> None:
    look(watch)
    assert not watch.outbox.mails
    look(watch)
    ((subject, text),) = watch.outbox.mails
    assert subject == "NEO test: PROBLEM: bak" and "not connected" in text
    look(watch)
    assert len(watch.outbox.mails) == 1
    backup = watch.backup()
    backup.send(NotifyMonitorInformation(INFO))
    for _ in range(2):
        watch.host.advance(LOOK_SECONDS)
        backup.answer(backup.take(AskRecovery), AnswerRecovery(1, TID, None))
        watch.last(watch.master, backup, tid=TID)
    assert [subject for subject, _ in watch.outbox.mails][1:] == ["NEO test: OK"]


def test_problems_that_keep_changing_are_mailed(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = cycle(
        [AnswerMonitorInformation([], [None], "a"), AnswerMonitorInformation([None], [], "b")]
    )
    monkeypatch.setattr(Examiner, "examine", lambda self, done: done(next(found)))
    for _ in range(CHANGING_LOOKS - 1):
        look(watch)
    assert not watch.outbox.mails
    look(watch)
    assert watch.outbox.mails == [("NEO test: WARNING: test", "b\n")]


def test_a_mail_that_could_not_be_sent_is_tried_again(watch: Watch) -> None:
    watch.outbox.failure = "refused"
    for _ in range(3):
        look(watch)
    assert len(watch.outbox.mails) == 2


# -- synchronous standbys -------------------------------------------------------------------------


def sync_health(watch: Watch, answer: AnswerSync) -> AnswerMonitorInformation:
    """Return what is told while the backup ``bak`` is well."""
    watch.master.send(NotifyFeatures([FEATURE_OURS]))
    future = watch.ctl().ask(AskMonitorInformation())
    watch.last()
    watch.tell(answer)
    watch.host.advance(REFRESH_SECONDS)
    result: AnswerMonitorInformation = future.result()
    return result


@pytest.mark.parametrize(
    ("state", "warnings", "problems"),
    [
        ("lost", [], [None]),
        ("async", [None], []),
        ("off", [None], []),
        ("joining", [], []),
    ],
)
def test_commits_that_wait_for_a_synchronous_backup_are_a_problem(
    watch: Watch, state: str, warnings: list[None], problems: list[None]
) -> None:
    """Specification 25.48."""
    since = watch.host.time() - SYNC_SECONDS
    answer = sync_health(watch, AnswerSync([("far", state, since, None, None, "it is away")], None))
    assert (answer.warning_list, answer.problem_list) == (warnings, [*problems, "bak"])
    told = [line for line in answer.summary.splitlines() if "synchronous standby far" in line]
    severities = ["warning"] * len(warnings) + ["problem"] * len(problems)
    assert [line.partition(":")[0] for line in told] == severities


@pytest.mark.parametrize(
    ("state", "warns"), [("lost", True), ("async", True), ("joining", False)]
)
def test_a_synchronous_backup_that_is_not_in_sync_is_a_warning(
    watch: Watch, state: str, warns: bool
) -> None:
    """Specification 25.48."""
    since = watch.host.time() - SYNC_SECONDS
    answer = sync_health(watch, AnswerSync([], ("up", state, since, None, None, "it is behind")))
    assert (answer.warning_list, answer.problem_list) == ([None] * warns, ["bak"])
    line = "\nwarning: this standby is not in sync with 'up' since "
    assert (line in answer.summary) is warns


def test_a_backup_that_is_not_in_sync_for_a_moment_is_not_told(watch: Watch) -> None:
    """Specification 25.48."""
    row: SyncRow = ("far", "lost", watch.host.time() - 1.0, None, None, "the master is new")
    assert sync_health(watch, AnswerSync([row], row)).problem_list == ["bak"]
    assert sync_health(watch, AnswerSync([row], row)).problem_list == [None, "bak"], "5 s later"


def test_a_cluster_that_does_not_serve_waits_for_no_backup(watch: Watch) -> None:
    """Specification 25.48."""
    watch.master.send(NotifyFeatures([FEATURE_OURS]))
    watch.master.send(NotifyClusterInformation(ClusterState.RECOVERING))
    row: SyncRow = ("far", "lost", 0.0, None, None, "it is away")
    future = watch.ctl().ask(AskMonitorInformation())
    watch.last()
    watch.tell(AnswerSync([row], row))
    watch.host.advance(REFRESH_SECONDS)
    assert "it is away" not in future.result().summary


# -- the admin of the backup ---------------------------------------------------------------------


def test_reports_what_changes_and_answers_for_its_master() -> None:
    """Specification 17.23, 17.24."""
    world = World()
    master = world.accept(ClusterState.BACKINGUP)
    master.send(NotifyUpstreamAdmin(UPSTREAM))
    upstream = world.host.dialed[-1]
    assert upstream.peer.address == UPSTREAM
    request = upstream.take(RequestIdentification)
    assert request == RequestIdentification(NodeType.ADMIN, None, None, "test", None, {})
    upstream.answer(request, AcceptIdentification(NodeType.ADMIN, None, None))
    info = upstream.take(NotifyMonitorInformation).info
    assert info == {"cluster_state": ClusterState.BACKINGUP, "down": 0, "pt_summary": {UP: 4}}
    master.send(NotifyPartitionChanges(2, 0, [(0, 1, OUT), (0, 2, UP)]))
    assert upstream.take(NotifyMonitorInformation).info == {"pt_summary": {UP: 4, OUT: 1}}
    master.send(NotifyClusterInformation(ClusterState.STOPPING_BACKUP))
    changed = upstream.take(NotifyMonitorInformation).info
    assert changed == {"cluster_state": ClusterState.STOPPING_BACKUP}
    rows: list[NodeRow] = [(kind, address, nid, DOWN, None) for kind, address, nid, *_ in NODES[2:]]
    master.send(NotifyNodeInformation(12.0, rows))
    assert upstream.take(NotifyMonitorInformation).info == {"down": 2}
    future = upstream.ask(AskRecovery())
    master.answer(master.take(AskRecovery), AnswerRecovery(1, TID, None))
    assert future.result() == AnswerRecovery(1, TID, None)
    master.lose()
    assert error_of(upstream.ask(AskRecovery())).code is ErrorCode.NOT_READY
    assert not upstream.closed


def test_connects_again_to_the_upstream_admin() -> None:
    world = World()
    world.accept(ClusterState.BACKINGUP).send(NotifyUpstreamAdmin(UPSTREAM))
    world.host.dialed[-1].lose()
    count = len(world.host.dialed)
    world.host.advance(RETRY_SECONDS)
    upstream = world.host.dialed[-1]
    assert len(world.host.dialed) == count + 1
    upstream.answer(
        upstream.take(RequestIdentification), AcceptIdentification(NodeType.ADMIN, None, None)
    )
    upstream.lose()
    assert world.host.dialed[-1].peer.address == UPSTREAM
    assert len(world.host.dialed) == count + 2


def test_a_backup_tells_how_far_behind_it_is_itself() -> None:
    world = World()
    master = world.accept(ClusterState.BACKINGUP)
    future = world.ctl().ask(AskMonitorInformation())
    master.answer(master.take(AskLastTransaction), AnswerLastTransaction(LATER))
    master.answer(master.take(AskRecovery), AnswerRecovery(1, TID, None))
    text = f"BACKINGUP; UP_TO_DATE=4; ltid={TID.hex()} (2026-11-20 10:45:07.858637); lag=1.0"
    assert future.result() == AnswerMonitorInformation([], [], text)
