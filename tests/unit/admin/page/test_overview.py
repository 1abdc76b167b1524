"""What the web page is told (specification 17.51). The primary master is played by the test."""

from __future__ import annotations

from typing import Any

import pytest

from neo.admin.page.overview import ANSWER_SECONDS, CONTENTS_SECONDS, FRESH_SECONDS
from neo.admin.page.rates import SAMPLE_SECONDS
from neo.protocol.enums import ClusterState
from neo.protocol.ids import tid_from_time
from neo.protocol.packets import (
    FEATURE_OURS,
    AnswerCommitCount,
    AnswerContents,
    AnswerLastTransaction,
    AnswerNodeDisks,
    AnswerRecovery,
    AnswerTransactions,
    AskCommitCount,
    AskContents,
    AskLastTransaction,
    AskRecovery,
    NotifyFeatures,
    TransactionRow,
)
from tests.support.remote import Remote
from tests.unit.admin.world import World

TID = tid_from_time(1_800_000_000.0 - 60)
CLIENT = -536870911
CONTENTS = AnswerContents([(1, 7, 7000, 1 << 40, 0, 0)])
DISKS = AnswerNodeDisks([(1, "0.1.0", 7, [("database", 5, 10)])])


class Told:
    """Opens the page again and again. ``data``: what it was told last."""

    def __init__(self, *settings: Any, state: ClusterState = ClusterState.RUNNING) -> None:
        self.world = World(*(settings or ((), 60.0, True)))
        self.master: Remote = self.world.accept(state)
        self.master.send(NotifyFeatures([FEATURE_OURS]))
        self.answers: list[Any] = []

    def ask(self) -> None:
        self.world.core.overview.tell(self.answers.append)
        self.world.core.flush()

    def answer(self, *more: Any) -> None:
        self.world.tell(*more)
        self.master.answer(self.master.take(AskLastTransaction), AnswerLastTransaction(TID))

    @property
    def data(self) -> Any:
        return self.answers[-1]


def test_the_page_is_told_what_neoctl_status_says_and_more() -> None:
    told = Told()
    told.ask()
    rows: list[TransactionRow] = [
        (TID, CLIENT, None, 1.0, "begun", 0, 0.0),
        (TID, CLIENT, None, 9.0, "voted", 1, 8.0),
    ]
    told.answer(CONTENTS, DISKS, AnswerTransactions(rows))
    data = told.data
    assert data["cluster"] == "test" and data["connected"] and data["seen"] == data["now"]
    status = data["status"]
    assert (status["state"], status["primary"], status["can_lose"]) == ("RUNNING", "M1", 0)
    assert status["last_time"] == pytest.approx(1_800_000_000.0 - 60)
    assert [row["age"] for row in status["transactions"]] == [9.0, 1.0] and status["open"] == 2
    assert status["disks"][0]["disks"] == [{"what": "database", "free": 5, "total": 10}]
    assert status["blobs"][0]["contents"] == 7
    (problem,) = (p for p in status["problems"] if "neoctl end" in p["advice"])
    assert problem["severity"] == "problem"
    assert status["lag"] is None and status["backups"] == []


def test_all_who_look_share_what_is_asked() -> None:
    told = Told((), 60.0, False)
    for _ in range(3):
        told.ask()
    told.answer(CONTENTS, DISKS)
    assert len(told.answers) == 3
    told.ask()
    assert len(told.answers) == 4 and not told.master.has(AskLastTransaction)
    told.world.host.advance(FRESH_SECONDS)
    told.ask()
    assert told.master.has(AskLastTransaction) and not told.master.has(AskContents)
    told.answer(DISKS)
    assert told.data["status"]["blobs"][0]["contents"] == 7, "contents are counted once a minute"
    told.world.host.advance(CONTENTS_SECONDS)
    told.ask()
    assert told.master.has(AskContents)


def test_without_a_primary_the_last_status_is_told_with_its_age() -> None:
    told = Told()
    told.ask()
    told.answer(CONTENTS, DISKS)
    seen = told.data["seen"]
    told.master.lose()
    told.world.host.advance(10)
    told.ask()
    assert not told.data["connected"] and told.data["status"]["state"] == "RUNNING"
    assert told.data["seen"] == seen and told.data["now"] - seen >= 10


def test_before_there_was_a_primary_nothing_is_claimed() -> None:
    world = World((), 60.0, True)
    answers: list[Any] = []
    world.core.overview.tell(answers.append)
    (data,) = answers
    assert not data["connected"] and data["status"] is None and data["seen"] is None


def test_a_primary_that_is_silent_is_away_and_is_asked_once() -> None:
    told = Told()
    told.ask()
    told.world.host.advance(ANSWER_SECONDS)
    assert not told.data["connected"]
    told.ask()
    told.world.host.advance(ANSWER_SECONDS)
    assert len(told.answers) == 2
    assert len([m for m in told.master.received if isinstance(m, AskLastTransaction)]) == 1
    told.ask()
    told.answer(CONTENTS, DISKS)
    assert told.data["connected"], "it answered late"


def test_the_rate_is_measured_all_the_time() -> None:
    told = Told()
    for count in (10, 60):
        told.world.host.advance(SAMPLE_SECONDS)
        told.master.answer(told.master.take(AskCommitCount), AnswerCommitCount(5.0, count))
    told.ask()
    told.answer(CONTENTS, DISKS)
    assert told.data["commits"]["per_second"] == pytest.approx(50 / SAMPLE_SECONDS)
    assert told.data["commits"]["total"] == 60


def test_a_backup_has_a_lag_and_no_rate() -> None:
    told = Told(state=ClusterState.BACKINGUP)
    told.world.host.advance(SAMPLE_SECONDS)
    assert not told.master.has(AskCommitCount)
    told.ask()
    behind = tid_from_time(1_800_000_000.0 - 75)
    told.master.answer(told.master.take(AskRecovery), AnswerRecovery(1, behind, None))
    told.answer(CONTENTS, DISKS)
    assert told.data["status"]["lag"] == pytest.approx(15.0)
    assert told.data["commits"]["per_second"] is None


def test_backups_that_are_watched_are_told() -> None:
    told = Told(("bak",), 60.0, True)
    told.ask()
    told.answer(CONTENTS, DISKS)
    (backup,) = told.data["status"]["backups"]
    assert backup["name"] == "bak" and backup["severity"] == "problem" and backup["state"] is None
    assert "not connected" in backup["text"]
