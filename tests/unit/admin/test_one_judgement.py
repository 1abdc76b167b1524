"""The admin node judges as ``neoctl status`` does: mails and the summary have the same problems
(specification 17.33)."""

from __future__ import annotations

import pytest

from neo.admin.alerts import LOOK_SECONDS
from neo.protocol.ids import ZERO_TID, p64
from neo.protocol.packets import (
    FEATURE_OURS,
    Answer,
    AnswerCheckReport,
    AnswerElection,
    AnswerLastTransaction,
    AnswerMonitorInformation,
    AnswerOperations,
    AnswerPrepared,
    AnswerSync,
    AnswerTransactions,
    AskLastTransaction,
    AskMonitorInformation,
    NotifyFeatures,
    OperationRow,
    TransactionRow,
)
from tests.unit.admin.world import M1, Outbox, World

TID = bytes.fromhex("040d24252187ba31")
#: Master 3 of three masters is away.
ELECTION = AnswerElection(
    3,
    1.8,
    17,
    4,
    [
        (M1, ("127.0.0.1", 2001), "primary", 17, ""),
        (M1 + 1, ("127.0.0.1", 2002), "secondary", 17, ""),
        (M1 + 2, ("127.0.0.1", 2010), "secondary", 12, "is not heard"),
    ],
)
UNDONE: OperationRow = (
    *(9, "backup", {}, "ROLLING_BACK", 5.0, [], "", [("copy", [1], False, True)]),
    [(1, 0, "failed", 0.5, "read-only")],
)


def blocking(seconds: float) -> TransactionRow:
    return p64(7), 1, None, 60.0, "voted", 3, seconds


@pytest.mark.parametrize(
    ("answer", "severity", "told"),
    [
        (
            AnswerCheckReport(ZERO_TID, ZERO_TID, [(2, None, "undecided", "choose one")]),
            "problem",
            "the copies of partition 2 differ -> choose one",
        ),
        (AnswerTransactions([blocking(45.0)]), "problem", "3 others wait for transaction 0x0"),
        (ELECTION, "warning", "2 of 3 masters run and vote: no other may fail -> start M3"),
        (AnswerOperations([UNDONE]), "warning", "operation 9 (backup) is being undone, and S1 says"),
        (
            AnswerPrepared([(b"x", p64(7), None, 5.0, 2, b"", "prepared")]),
            "warning",
            "transaction x is prepared and not decided, for ",
        ),
    ],
)
def test_the_summary_has_what_status_says(answer: Answer, severity: str, told: str) -> None:
    world = World()
    world.accept().send(NotifyFeatures([FEATURE_OURS]))
    future = world.ctl().ask(AskMonitorInformation())
    world.master.answer(world.master.take(AskLastTransaction), AnswerLastTransaction(TID))
    world.tell(answer)
    result: AnswerMonitorInformation = future.result()
    assert result.problem_list == [None] * (severity == "problem")
    assert result.warning_list == [None] * (severity == "warning")
    _, line = result.summary.splitlines()
    assert line.startswith(f"{severity}: {told}")


def test_a_problem_is_mailed_once_although_its_numbers_change_and_another_one_again() -> None:
    outbox = Outbox()
    world = World((), 0.0, mails=outbox)
    world.accept().send(NotifyFeatures([FEATURE_OURS]))
    lost = AnswerSync([("far", "lost", 5.0, None, None, "it is away")], None)
    for seconds in range(10, 80, 10):
        world.host.advance(LOOK_SECONDS)
        master = world.master
        master.answer(master.take(AskLastTransaction), AnswerLastTransaction(TID))
        others = [lost] if seconds >= 50 else []
        world.tell(AnswerTransactions([blocking(float(seconds))]), *others)
    (first, alone), (second, both) = outbox.mails
    assert first == second == "NEO test: PROBLEM: test"
    assert "since 20 s" in alone and "commits wait for synchronous standby far" not in alone
    assert "since 60 s" in both and "commits wait for synchronous standby far" in both
