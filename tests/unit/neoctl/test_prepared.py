"""Prepared transactions on the command line, and in ``status`` (specification 24.10 to 24.16)."""

from __future__ import annotations

import json
import time

from neo.admin.problems import PREPARED_SECONDS
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import p64, parse_nid
from neo.protocol.packets import (
    AnswerFinishPrepared,
    AnswerPrepared,
    AnswerTransactions,
    AskFinishPrepared,
    AskPrepared,
    AskTransactions,
    Error,
    ForgetPrepared,
    PreparedRow,
)
from neoctl.status import EXIT_PROBLEM
from tests.unit.neoctl.conftest import Make

NOON = 1795608000.0


def row(xid: bytes, since: float = NOON, state: str = "prepared") -> PreparedRow:
    tid = p64(0x20) if state == "committed" else None
    return xid, p64(0x12), tid, since, 2, b"ada /pay", state


def warnings(console: Make, *rows: PreparedRow) -> tuple[int, list[str]]:
    return console({AskPrepared: AnswerPrepared(list(rows))}).problems()


def test_prepared_transactions_are_printed(console: Make) -> None:
    answer = AnswerPrepared([row(b"neo-1"), row(b"a b", state="committed")])
    ctl = console({AskPrepared: answer})
    assert ctl("print", "prepared") == 0
    assert ctl.out == (
        "# xid | state | since (UTC) | objects | text\n"
        "neo-1 | prepared | 2026-11-25 12:00:00 | 2 | ada /pay\n"
        "0x612062 | committed | 2026-11-25 12:00:00 | 2 | ada /pay\n"
    )
    assert ctl.admin.asked == [AskPrepared(0, None)]
    assert ctl("--json", "print", "prepared", "10") == 0
    assert ctl.admin.asked == [AskPrepared(10, None)]
    assert json.loads(ctl.out)["prepared"][1] == {
        "xid": "0x612062",
        "ttid": "0x0000000000000012",
        "tid": "0x0000000000000020",
        "since": NOON,
        "objects": 2,
        "text": "ada /pay",
        "state": "committed",
    }


def test_a_prepared_transaction_is_committed_rolled_back_and_forgotten(console: Make) -> None:
    ctl = console(
        {
            AskFinishPrepared: lambda m: AnswerFinishPrepared(p64(0x20) if m.commit else None),
            ForgetPrepared: Error(ErrorCode.ACK.value, "forgotten"),
        }
    )
    assert ctl("commit", "neo-1") == 0
    assert ctl.out == "committed as 0x0000000000000020\n"
    assert ctl.admin.asked == [AskFinishPrepared(b"neo-1", True)]
    assert ctl("rollback", "0x612062") == 0
    assert ctl.out == "rolled back\n"
    assert ctl.admin.asked == [AskFinishPrepared(b"a b", False)]
    assert ctl("forget", "neo-1") == 0
    assert ctl.out == "forgotten\n"
    assert ctl.admin.asked == [ForgetPrepared(b"neo-1")]


def test_a_refused_decision_is_shown_in_the_words_of_the_master(console: Make) -> None:
    refused = ErrorAnswer(ErrorCode.DENIED, "neo-1 was rolled back")
    ctl = console({AskFinishPrepared: refused})
    assert ctl("commit", "neo-1") == 1
    assert "neo-1 was rolled back" in ctl.out + ctl.err


def test_what_a_coordinator_left_for_long_is_a_warning(console: Make) -> None:
    now = time.time()
    code, lines = warnings(
        console,
        row(b"neo-1", now - PREPARED_SECONDS - 60),
        row(b"neo-2", now - 3 * 86400 - 60),
        row(b"neo-3", now),
        row(b"neo-4", now - 86400, "rolled back"),
    )
    assert code == 0
    assert len(lines) == 1
    assert lines[0].startswith(
        "warning: 2 transactions are prepared and not decided, for 3 days (neo-2): nothing else can"
        " write their 4 objects"
    )
    assert lines[0].endswith("has committed it: neoctl rollback neo-2")
    assert warnings(console, row(b"neo-3", now))[1] == ["No problem."]


def test_a_wait_for_a_prepared_transaction_names_its_coordinator_as_the_cause(
    console: Make,
) -> None:
    waiting = (p64(0x12), parse_nid("C1"), None, 95.2, "prepared", 1, 42.0)
    answers = {
        AskTransactions: AnswerTransactions([waiting]),
        AskPrepared: AnswerPrepared([row(b"neo-1")]),
    }
    code, lines = console(answers).problems()
    assert code == EXIT_PROBLEM
    (line,) = [line for line in lines if line.startswith("problem")]
    assert "1 other waits for what prepared transaction neo-1 holds, since 42 s" in line
    assert line.endswith("neoctl rollback neo-1")
