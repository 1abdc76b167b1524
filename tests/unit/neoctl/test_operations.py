"""``neoctl`` begins operations, waits for them, and shows them (specification 27)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from neo.archive.folder import ArchiveFolder
from neo.protocol.enums import ClusterState, ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import p64
from neo.protocol.packets import (
    AbortOperation,
    AnswerBeginOperation,
    AnswerClusterState,
    AnswerOperations,
    AskBeginOperation,
    AskClusterState,
    AskOperations,
    Error,
    ForgetOperation,
    OperationRow,
    StepRow,
)
from neoctl import operations
from tests.unit.archive.copies import Source
from tests.unit.neoctl.conftest import Make


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let neoctl ask again at once."""
    monkeypatch.setattr(operations, "POLL_SECONDS", 0.0)


STEPS: list[StepRow] = [("look", [1, 2], False, False), ("copy", [1, 2], True, True)]
ARGUMENTS = {"path": "/backup", "full": False}


def row(state: str, text: str = "", *progress: tuple[int, int, str, float, str]) -> OperationRow:
    locks = ["history", "table"]
    return 12, "backup", ARGUMENTS, state, 1764040000.5, locks, text, STEPS, [*progress]


DONE = [(node, step, "done", 1.0, "") for node in (1, 2) for step in (0, 1)]
HALF = [
    (1, 0, "done", 1.0, ""),
    (2, 0, "done", 1.0, ""),
    (1, 1, "begun", 0.5, "partition 3"),
    (2, 1, "waits", 0.0, ""),
]


def ack(text: str) -> Error:
    return Error(ErrorCode.ACK.value, text)


def test_n_shows_the_steps(console: Make) -> None:
    ctl = console({AskBeginOperation: AnswerBeginOperation(None, STEPS)})
    assert ctl.lines("backup", "-n", "/backup") == [
        "1. look on S1, S2 (changes nothing that must be undone)",
        "2. copy on S1, S2 (waits until all nodes have done the steps before)",
    ]
    assert ctl.admin.asked == [AskBeginOperation("backup", ARGUMENTS, True)]


@pytest.mark.parametrize(
    ("state", "text", "code", "said"),
    [
        ("SUCCEEDED", "", 0, "operation 12: backup /backup: succeeded"),
        ("FAILED", "no room", 1, "operation 12: backup /backup: failed: no room"),
    ],
)
def test_a_verb_waits_for_the_end(
    console: Make, state: str, text: str, code: int, said: str
) -> None:
    rows = iter([row("RUNNING", "", *HALF), row("RUNNING", "", *HALF), row(state, text, *DONE)])
    ctl = console(
        {
            AskBeginOperation: AnswerBeginOperation(12, STEPS),
            AskOperations: lambda _: AnswerOperations([next(rows)]),
        }
    )
    assert ctl("backup", "/backup", "full") == code
    assert ctl.out == f"{said}\n"
    assert ctl.admin.asked[0] == AskBeginOperation("backup", ARGUMENTS | {"full": True}, False)


@pytest.mark.parametrize(
    ("kind", "arguments", "shown"),
    [
        (
            "backup",
            {"path": "/b", "full": True, "tid": "0a", "pack": "00", "partitions": 12, "readers": [1]},
            "backup /b full as of 0x0a",
        ),
        ("restore", {"path": "/b", "tid": "", "partitions": 12}, "restore /b"),
        ("partitions", {"partitions": 24, "before": 12}, "partitions 24 instead of 12"),
        ("replace", {"leaving": "S1", "incoming": "S4", "gains": "4:0"}, "replace S1 S4"),
    ],
)
def test_an_operation_shows_what_operators_want_of_it(
    console: Make, kind: str, arguments: dict[str, Any], shown: str
) -> None:
    answer: OperationRow = 12, kind, arguments, "SUCCEEDED", 1764040000.5, [], "", STEPS, [*DONE]
    ctl = console({AskOperations: AnswerOperations([answer])})
    assert ctl.lines("print", "operations") == [f"operation 12: {shown}: succeeded"]


def test_a_master_that_is_away_for_a_while_is_waited_for(console: Make) -> None:
    away = ErrorAnswer(ErrorCode.NOT_READY, "Not connected to a primary master.")
    answers = iter([away, away, AnswerOperations([row("SUCCEEDED", "", *DONE)])])
    begun = AnswerBeginOperation(12, STEPS)
    ctl = console({AskBeginOperation: begun, AskOperations: lambda _: next(answers)})
    assert ctl("backup", "/backup") == 0


def test_an_operation_that_went_down_with_the_only_master_is_not_waited_for(console: Make) -> None:
    states = iter([ClusterState.RECOVERING, ClusterState.RUNNING])
    script = {
        AskBeginOperation: AnswerBeginOperation(12, STEPS),
        AskOperations: ErrorAnswer(
            ErrorCode.DENIED, "there is no operation 12, or it ended long ago"
        ),
        AskClusterState: lambda _: AnswerClusterState(next(states)),
    }
    ctl = console(script)
    assert ctl("backup", "/backup") != 0
    assert "operation 12 is not known any more" in ctl.out + ctl.err
    assert list(states) == []


def test_a_master_that_stays_away_is_not_waited_for_for_ever(
    console: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "PATIENCE_SECONDS", -1.0)
    away = ErrorAnswer(ErrorCode.NOT_READY, "Not connected to a primary master.")
    script = {AskBeginOperation: AnswerBeginOperation(12, STEPS), AskOperations: away}
    ctl = console(script)
    assert ctl("backup", "/backup") == 1
    assert "the operation goes on: neoctl print operations 12" in ctl.err


@pytest.mark.parametrize(
    ("words", "tid"), [([], ""), (["0x0000000000000010"], p64(16).hex()), (["16"], p64(16).hex())]
)
def test_a_moment_is_sent_as_a_tid(console: Make, words: list[str], tid: str) -> None:
    ctl = console({AskBeginOperation: AnswerBeginOperation(None, STEPS)})
    assert ctl("restore", "-n", "/backup", *words) == 0
    assert ctl.admin.asked == [AskBeginOperation("restore", {"path": "/backup", "tid": tid}, True)]


@pytest.mark.parametrize(
    ("words", "kind", "arguments"),
    [
        (["replace", "-n", "S2", "S5"], "replace", {"old": 2, "new": 5}),
        (["add", "-n", "S5", "S6"], "add", {"nodes": [5, 6]}),
        (["remove", "-n", "S5"], "remove", {"nodes": [5]}),
    ],
)
def test_nodes_are_sent_by_their_ids(
    console: Make, words: list[str], kind: str, arguments: dict[str, Any]
) -> None:
    steps: list[StepRow] = [("give cells", [0], True, True), ("copy", [5], True, False)]
    ctl = console({AskBeginOperation: AnswerBeginOperation(None, steps)})
    assert ctl.lines(*words) == [
        "1. give cells on the master (waits until all nodes have done the steps before)",
        "2. copy on S5 (waits until all nodes have done the steps before; changes nothing that must be"
        " undone)",
    ]
    assert ctl.admin.asked == [AskBeginOperation(kind, arguments, True)]


def test_a_refusal_is_told(console: Make) -> None:
    why = "operation 11 (restore) holds 'history': neoctl print operations"
    ctl = console({AskBeginOperation: ErrorAnswer(ErrorCode.DENIED, why)})
    assert ctl("backup", "/backup") == 1 and ctl.out == f"{why}\n"


def test_operations_are_listed(console: Make) -> None:
    ctl = console(
        {AskOperations: AnswerOperations([row("FAILED", "why"), row("RUNNING", "", *HALF)])}
    )
    assert ctl.lines("print", "operations") == [
        "operation 12: backup /backup: failed: why",
        "operation 12: backup /backup, running, step 2 of 2 (copy), 62 %, since 2025-11-25 03:06:40 UTC",
    ]
    found = ctl.data("print", "operations")["operations"][1]
    assert (found["id"], found["state"], found["done"]) == (12, "RUNNING", 0.625)
    assert found["progress"][2] == {
        "node": "S1", "step": 1, "mark": "begun", "done": 0.5, "text": "partition 3",
    }  # fmt: skip


def test_there_is_no_operation(console: Make) -> None:
    assert console().lines("print", "operations") == ["No operation."]


def test_one_operation_is_shown_with_its_nodes(console: Make) -> None:
    ctl = console({AskOperations: AnswerOperations([row("RUNNING", "", *HALF)])})
    assert ctl.lines("print", "operations", "12")[1:] == [
        "locks: history, table",
        "1. look on S1, S2 (changes nothing that must be undone)",
        "   S1 done, 100 %",
        "   S2 done, 100 %",
        "2. copy on S1, S2 (waits until all nodes have done the steps before)",
        "   S1 begun, 50 %: partition 3",
        "   S2 waits, 0 %",
    ]
    assert ctl.admin.asked == [AskOperations(12)]
    ctl = console({AskOperations: AnswerOperations([row("SUCCEEDED", "", *DONE)])})
    assert not any("locks" in line for line in ctl.lines("print", "operations", "12"))


def test_status_tells_what_is_in_progress_and_what_keeps_it(console: Make) -> None:
    stuck = (2, 1, "failed", 0.0, "it cannot be undone yet: the disk is full")
    undone = (1, 1, "rolled back", 0.0, "")
    found = [row("SUCCEEDED"), row("ROLLING_BACK", "why", undone, stuck)]
    ctl = console({AskOperations: AnswerOperations(found)})
    ctl("status")
    text = "operation 12: backup /backup, rolling back, why; S2 must still undo its part, since"
    assert text in ctl.out
    assert "S2: it cannot be undone yet: the disk is full" in ctl.out
    assert "succeeded" not in ctl.out
    assert [each["state"] for each in ctl.data("status")["operations"]] == ["ROLLING_BACK"]


def test_an_operation_is_aborted_and_a_node_forgotten(console: Make) -> None:
    ctl = console({AbortOperation: ack("it is undone"), ForgetOperation: ack("forgotten")})
    assert ctl.lines("abort", "12") == ["it is undone"]
    assert ctl.admin.asked == [AbortOperation(12)]
    assert ctl.lines("forget_operation", "12", "S2") == ["forgotten"]
    assert ctl.admin.asked == [ForgetOperation(12, 2)]


# -- verify ----------------------------------------------------------------------------------------


def archive(tmp_path: Path, **options: Any) -> Path:
    source = Source(tmp_path / "source")
    source.contents = {4: b"content"}
    source.copy(ArchiveFolder(str(tmp_path / "archive")), range(3, 11), **options)
    return tmp_path / "archive"


def test_an_intact_archive_is_verified_without_a_cluster(console: Make, tmp_path: Path) -> None:
    ctl = console()
    assert ctl("verify", str(archive(tmp_path))) == 0
    assert ctl.out == "1 copy, intact: the database as it was at 0x000000000000000a\n"
    assert ctl.err == "" and ctl.admin.asked == []


def test_problems_of_an_archive_are_told(console: Make, tmp_path: Path) -> None:
    path = archive(tmp_path)
    for file in path.rglob("partition-*.rows"):
        file.write_bytes(b"damaged")
    ctl = console()
    assert ctl("verify", str(path)) == 1
    assert ctl.out.count("is damaged at byte 0") == 2


def test_what_was_lost_before_is_a_hint(console: Make, tmp_path: Path) -> None:
    ctl = console()
    assert ctl("verify", str(archive(tmp_path, lose=True))) == 0
    assert "1 content of a blob was lost already" in ctl.err
