"""``neoctl status`` shows what storage nodes say is wrong with them (specification 17.32)."""

from __future__ import annotations

import json
from collections.abc import Callable

from neo.protocol.enums import CellState, ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.packets import (
    AnswerNodeConditions,
    AnswerPartitionList,
    AskNodeConditions,
    AskPartitionList,
)
from tests.unit.neoctl.conftest import Console

Make = Callable[..., Console]

FULL = ("room", "problem", "3.0 MB are free on the disk of its database", "free space on that disk")
COPY = ("copy", "problem", "2 partitions cannot be copied to it: no space", "mend what the reason names")
UP, OUT = CellState.UP_TO_DATE, CellState.OUT_OF_DATE


def test_status_tells_what_a_node_says(console: Make) -> None:
    ctl = console({AskNodeConditions: AnswerNodeConditions([(2, FULL)])})
    assert ctl("status") != 0
    assert "problem: S2 says: 3.0 MB are free on the disk of its database" in ctl.out
    assert "free space on that disk" in ctl.out
    ctl("status", "--json")
    assert json.loads(ctl.out)["conditions"] == [
        dict(zip(("nid", "kind", "severity", "text", "advice"), ("S2", *FULL), strict=True))
    ]


def test_a_copy_that_fails_does_not_just_take_a_while(console: Make) -> None:
    answers = {AskPartitionList: AnswerPartitionList(1, 1, [[(1, UP), (2, OUT)]])}
    ctl = console(answers)
    ctl("status")
    assert "S2 is copying 1 partition" in ctl.out and "nothing, it takes a while" in ctl.out
    ctl = console({**answers, AskNodeConditions: AnswerNodeConditions([(2, COPY)])})
    ctl("status")
    assert "S2 is copying" not in ctl.out and "mend what the reason names" in ctl.out
    assert "takes a while" not in ctl.out


def test_a_master_of_an_earlier_version_says_nothing(console: Make) -> None:
    unknown = ErrorAnswer(ErrorCode.DENIED, "the primary master does not know this command")
    ctl = console({AskNodeConditions: unknown})
    assert ctl("status") == 0
