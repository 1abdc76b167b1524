"""Open transactions on the command line, and the ones that make others wait in ``status``."""

from __future__ import annotations

import pytest

from neo.admin.problems import BLOCKING_SECONDS, NAMED_MOST
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import p64, parse_nid
from neo.protocol.packets import AnswerTransactions, AskTransactions, TransactionRow
from neoctl.status import EXIT_PROBLEM
from tests.unit.neoctl.conftest import Make

C1, C2 = parse_nid("C1"), parse_nid("C2")


def row(ttid: int, phase: str = "voted", waiting: int = 0, seconds: float = 0.0) -> TransactionRow:
    return p64(ttid), C1, ("10.0.0.7", 4711), 95.24, phase, waiting, seconds


def status(console: Make, *rows: TransactionRow) -> tuple[int, list[str]]:
    return console({AskTransactions: AnswerTransactions(list(rows))}).problems()


def test_open_transactions_are_printed(console: Make) -> None:
    rows = [row(0x12, "voted", 3, 42.04), (p64(5), C2, None, 1.0, "finishing", 0, 0.0)]
    ctl = console({AskTransactions: AnswerTransactions(rows)})
    assert ctl("print", "transactions") == 0
    assert ctl.out == (
        "# ttid | client | address | age | phase | waiting | seconds\n"
        "0x0000000000000012 | C1 | 10.0.0.7:4711 | 95.2 | voted | 3 | 42.0\n"
        "0x0000000000000005 | C2 | - | 1.0 | finishing | 0 | 0.0\n"
    )
    first, second = ctl.data("print", "transactions")["transactions"]
    assert first == {
        "ttid": "0x0000000000000012",
        "client": "C1",
        "address": "10.0.0.7:4711",
        "age": 95.2,
        "phase": "voted",
        "waiting": 3,
        "seconds": 42.0,
    }
    assert second["address"] is None


def test_a_transaction_that_makes_others_wait_is_a_problem(console: Make) -> None:
    code, lines = status(console, row(0x12, "voted", 3, 42.3), row(0x13))
    assert code == EXIT_PROBLEM
    assert lines == [
        "problem: 3 others wait for transaction 0x0000000000000012 of C1 (10.0.0.7:4711) since 42 s;"
        " it began 95 s ago and is voted -> let that client go on, or abort its transaction:"
        " neoctl end 0x0000000000000012"
    ]


@pytest.mark.parametrize(
    "rows",
    [(), (row(1, "voted"),), (row(1, "voted", 1, BLOCKING_SECONDS - 0.1),)],
    ids=["none", "nobody waits", "not for long"],
)
def test_transactions_as_usual_are_no_problem(
    console: Make, rows: tuple[TransactionRow, ...]
) -> None:
    assert status(console, *rows) == (0, ["No problem."])


def test_who_waits_itself_is_not_to_blame(console: Make) -> None:
    _, lines = status(console, row(2, "waiting", 1, 30.0), row(1, "storing", 1, 20.0))
    (line,) = lines
    assert "1 other waits for transaction 0x0000000000000001" in line


def test_if_all_wait_all_are_named(console: Make) -> None:
    _, lines = status(console, row(2, "waiting", 1, 30.0), row(1, "waiting", 1, 20.0))
    assert ["0x0000000000000002" in line for line in lines] == [True, False]


def test_what_is_being_finished_is_not_to_be_ended(console: Make) -> None:
    _, (line,) = status(console, row(1, "finishing", 1, 20.0))
    assert "neoctl end" not in line and "storage node" in line


def test_many_are_counted(console: Make) -> None:
    rows = [row(n, "voted", 1, 10.0 + n) for n in range(NAMED_MOST + 3)]
    _, lines = status(console, *rows)
    assert len(lines) == NAMED_MOST + 1
    assert f"{rows[-1][0].hex()}" in lines[0]
    assert lines[-1] == (
        "problem: 3 more transactions make others wait -> neoctl print transactions"
    )


def test_a_master_that_is_not_there_is_an_error(console: Make) -> None:
    refusal = ErrorAnswer(ErrorCode.NOT_READY, "Not connected")
    assert console({AskTransactions: refusal})("status") == 1
