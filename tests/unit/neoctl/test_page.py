"""Commands of the web page are those of ``neoctl``, and show the same; the file of passwords."""

from __future__ import annotations

import io
import stat
from pathlib import Path
from typing import Any

import pytest

from neo.admin.page.accounts import Accounts
from neo.admin.page.commanding import Refused, Wanted
from neo.protocol.enums import CellState, ErrorCode, NodeType
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import nid_namespace
from neo.protocol.packets import (
    AbortOperation,
    AnswerNodeDisks,
    AnswerOperations,
    AnswerPartitionList,
    AnswerTransactions,
    AnswerTweakPartitionTable,
    AskNodeDisks,
    AskOperations,
    AskPartitionList,
    AskTransactions,
    EndTransaction,
    Message,
    OperationRow,
    TransactionRow,
    TweakPartitionTable,
)
from neoctl.__main__ import main
from neoctl.page import PageCommander
from tests.unit.neoctl.conftest import GB, ROWS, VERSION, Make

UP, OUT = CellState.UP_TO_DATE, CellState.OUT_OF_DATE
AFTER = [[*row, (1, OUT)] if (1, UP) not in row else row for row in ROWS]
C1 = nid_namespace(NodeType.CLIENT) + 1
TTID = bytes.fromhex("040d56ba08e07c14")
TWEAK = Wanted("tweak", "")
END = Wanted("end", "0x040d56ba08e07c14")
ABORT = Wanted("abort", "7")


def operation(state: str) -> AnswerOperations:
    steps = [("copy", [3], False, True)]
    row: OperationRow = (7, "replace", {"old": 2, "new": 3}, state, 1.8e9, ["table"], "", steps, [])
    return AnswerOperations([row])


def transactions(waiting: int) -> AnswerTransactions:
    row: TransactionRow = (TTID, C1, ("10.0.0.7", 41234), 95.0, "voted", waiting, 42.0)
    return AnswerTransactions([row])


def commander(console: Make, answers: dict[type[Message], Any]) -> tuple[Any, PageCommander]:
    ctl = console(answers)
    return ctl, PageCommander(ctl.admin.address, None)


def test_a_tweak_shows_what_neoctl_shows_and_is_executed_only_if_it_is_still_that(console: Make) -> None:
    ctl, page = commander(console, {TweakPartitionTable: AnswerTweakPartitionTable(True, AFTER)})
    shown = page.preview(TWEAK)
    assert ctl("tweak", "-n") == 0
    assert shown.text == ctl.out + ctl.err.removeprefix("neoctl: ").rstrip("\n")
    assert "S1 gets 2 cells" in shown.text and shown.command == "neoctl tweak"
    assert "becomes" in page.execute(TWEAK, shown.seal)
    assert ctl.admin.asked[-2] == TweakPartitionTable(False, [])
    ctl.admin.answers[TweakPartitionTable] = AnswerTweakPartitionTable(True, ROWS)
    ctl.admin.asked.clear()
    with pytest.raises(Refused, match="would not do any more what was shown"):
        page.execute(TWEAK, shown.seal)
    assert TweakPartitionTable(False, []) not in ctl.admin.asked
    ctl.admin.answers[TweakPartitionTable] = AnswerTweakPartitionTable(False, ROWS)
    with pytest.raises(Refused, match="balanced"):
        page.preview(TWEAK)


def test_a_tweak_that_would_fill_a_disk_is_refused_as_neoctl_refuses_it(console: Make) -> None:
    rows = [(nid, VERSION, 8 * GB, [("database", GB, 100 * GB)]) for nid in (1, 2, 3)]
    _, page = commander(
        console,
        {
            TweakPartitionTable: AnswerTweakPartitionTable(True, AFTER),
            AskNodeDisks: AnswerNodeDisks(rows),
            AskPartitionList: AnswerPartitionList(1, 1, ROWS),
        },
    )
    shown = page.preview(TWEAK)
    assert "S1 would get about" in shown.text
    with pytest.raises(Refused, match="S1 would get about") as refused:
        page.execute(TWEAK, shown.seal)
    assert "--force" in refused.value.hint


def test_a_transaction_is_ended_that_others_wait_for(console: Make) -> None:
    ctl, page = commander(
        console, {AskTransactions: transactions(3), EndTransaction: "the transaction is aborted"}
    )
    shown = page.preview(END)
    assert "client C1 is aborted" in shown.will and "10.0.0.7:41234" in shown.text
    assert page.execute(END, shown.seal) == "the transaction is aborted"
    assert ctl.admin.asked[-1] == EndTransaction(TTID)
    ctl.admin.answers[AskTransactions] = transactions(0)
    with pytest.raises(Refused, match="no other transaction waits") as refused:
        page.execute(END, shown.seal)
    assert refused.value.hint == "if it must end: neoctl end 0x040d56ba08e07c14"
    ctl.admin.answers[AskTransactions] = AnswerTransactions([])
    with pytest.raises(Refused, match="not open any more"):
        page.preview(END)


def test_an_operation_is_aborted_that_goes_on(console: Make) -> None:
    ctl, page = commander(console, {AskOperations: operation("RUNNING"), AbortOperation: "being undone"})
    shown = page.preview(ABORT)
    assert ctl("print", "operations", "7") == 0
    assert shown.text == ctl.out.rstrip("\n") and "undone" in shown.will
    assert page.execute(ABORT, shown.seal) == "being undone"
    assert ctl.admin.asked[-1] == AbortOperation(7)
    ctl.admin.answers[AskOperations] = operation("SUCCEEDED")
    with pytest.raises(Refused, match="has ended"):
        page.execute(ABORT, shown.seal)
    ctl.admin.answers[AskOperations] = ErrorAnswer(ErrorCode.DENIED, "no such operation")
    with pytest.raises(Refused, match="no such operation"):
        page.preview(ABORT)
    with pytest.raises(Refused, match="is not a number"):
        page.preview(Wanted("abort", ""))


def test_an_admin_node_that_is_away_is_said(console: Make) -> None:
    with pytest.raises(Refused, match="cannot be reached"):
        PageCommander(("127.0.0.1", 1), None).preview(TWEAK)


def test_a_password_is_kept_as_a_hash_in_a_file_for_the_nodes_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "passwords"

    def password(name: str, typed: str) -> int:
        monkeypatch.setattr("sys.stdin", io.StringIO(f"{typed}\n"))
        return main(["password", str(file), name])

    assert password("ada", "correct horse") == 0
    assert f"http_passwords = {file}" in capsys.readouterr().out
    assert stat.S_IMODE(file.stat().st_mode) & 0o137 == 0, "nobody else reads it"
    assert password("bob@example", "battery staple") == 0
    accounts = Accounts(str(file))
    assert accounts.verify("ada", "correct horse") and accounts.verify("bob@example", "battery staple")
    assert not accounts.verify("ada", "battery staple") and not accounts.verify("eve", "correct horse")
    assert "horse" not in file.read_text()
    file.chmod(0o600)
    assert password("ada", "another password") == 0
    assert not accounts.verify("ada", "correct horse") and accounts.verify("ada", "another password")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and len(file.read_text().splitlines()) == 2
    before = file.read_bytes()
    capsys.readouterr()
    for name, typed, why in (
        ("ada", "short", "a password has 12 to 200 characters"),
        ("a:b", "correct horse", "'a:b' is no name"),
        ("", "correct horse", "'' is no name"),
    ):
        assert password(name, typed) == 1
        assert why in capsys.readouterr().out
    file.chmod(0o644)
    assert password("ada", "correct horse") == 1
    assert "chmod 600" in capsys.readouterr().out
    assert file.read_bytes() == before and [path.name for path in tmp_path.iterdir()] == ["passwords"]
