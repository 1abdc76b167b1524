"""docs/json.md has the keys of each verb, as ``neoctl --json`` prints them, and no others."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from neo.archive.folder import ArchiveFolder
from neo.protocol.enums import CellState, ErrorCode, NodeType
from neo.protocol.ids import nid_namespace
from neo.protocol.packets import (
    AbortOperation,
    AddPendingNodes,
    AnswerBeginOperation,
    AnswerCheckReport,
    AnswerClientCaches,
    AnswerContents,
    AnswerFinishPrepared,
    AnswerLostContents,
    AnswerOperations,
    AnswerPartitionList,
    AnswerPrepared,
    AnswerSync,
    AnswerTransactions,
    AnswerTweakPartitionTable,
    AskBeginOperation,
    AskCheckReport,
    AskClientCaches,
    AskContents,
    AskElection,
    AskFinishPrepared,
    AskLostContents,
    AskOperations,
    AskPartitionList,
    AskPrepared,
    AskSync,
    AskTransactions,
    CheckReplicas,
    EndTransaction,
    Error,
    ForgetOperation,
    ForgetPrepared,
    ForgetTable,
    Message,
    Repair,
    RepairCells,
    SetClusterState,
    SetNodeState,
    SetNumReplicas,
    SetPrimary,
    SetSync,
    Truncate,
    TweakPartitionTable,
)
from neoctl.verbs import VERBS
from tests.unit.archive.copies import Source
from tests.unit.neoctl.conftest import ELECTION, ROWS, Make

PAGE = Path(__file__).parents[3] / "docs" / "json.md"
#: Objects whose keys are data.
MAPS = ("cells", "arguments")
TID = bytes.fromhex("040d56ba08e07c14")
C1 = nid_namespace(NodeType.CLIENT) + 1
OUT = CellState.OUT_OF_DATE
DAMAGED = [[(1, CellState.CORRUPTED), *ROWS[0][1:]], *ROWS[1:]]
AFTER = [[*row, (1, OUT)] if 1 not in dict(row) else row for row in ROWS]
SYNC = ("tokyo", "lost", 1.8e9, TID, 3.0, "not heard")
XID = "pay-1"
OPERATION = (
    *(12, "backup", {"path": "/backup"}, "SUCCEEDED", 1.8e9, ["table"], ""),
    [("copy", [1], True, True)],
    [(1, 0, "done", 1.0, "")],
)
COMMANDS = (
    *(AbortOperation, AddPendingNodes, CheckReplicas, EndTransaction, ForgetOperation, ForgetPrepared),
    *(ForgetTable, Repair, RepairCells, SetClusterState, SetNodeState, SetNumReplicas, SetPrimary),
    *(SetSync, Truncate),
)
#: Answers with all that there can be: no list is empty.
ANSWERS: dict[type[Message], Any] = {
    **dict.fromkeys(COMMANDS, Error(ErrorCode.ACK.value, "done")),
    AskElection: ELECTION,
    AskPartitionList: AnswerPartitionList(1, 1, DAMAGED),
    AskCheckReport: AnswerCheckReport(TID, TID, [(0, 1, "differs", "3 rows")]),
    AskTransactions: AnswerTransactions([(TID, C1, None, 1.0, "voted", 1, 1.0)]),
    AskPrepared: AnswerPrepared([(XID.encode(), TID, TID, 1.8e9, 1, b"ada", "committed")]),
    AskSync: AnswerSync([SYNC], SYNC),
    AskClientCaches: AnswerClientCaches([(C1, "web1:77", 1, 1, 1, 1, 1)]),
    AskContents: AnswerContents([(1, 1, 1, 1, 1, 1)]),
    AskLostContents: AnswerLostContents([(1, TID, TID, bytes(32), 1)]),
    AskOperations: AnswerOperations([OPERATION]),
    AskBeginOperation: AnswerBeginOperation(12, []),
    AskFinishPrepared: AnswerFinishPrepared(TID),
    TweakPartitionTable: AnswerTweakPartitionTable(True, AFTER),
}
#: What follows the verbs that need something.
WORDS = {
    **dict.fromkeys(("abort", "forget_table", "set replicas", "set partitions"), "1"),
    **dict.fromkeys(("drop", "kill", "remove", "admit", "add"), "S1"),
    **dict.fromkeys(("commit", "rollback", "forget"), XID),
    **dict.fromkeys(("backup", "restore"), "/backup"),
    **dict.fromkeys(("end", "truncate"), "0x040d56ba08e07c14"),
    "replace": "S1 S4",
    "set cluster": "verifying",
    "set primary": "M2",
    "set sync": "tokyo on",
    "repair": "0:S1",
    "prune_orphan": "1 all",
    "forget_operation": "12 S1",
    "verify": "{folder}/archive",
    "init": "{folder}/new shop 10.0.0.1",
    "password": "{folder}/passwords ada",
    "completion": "bash",
}


def keys(data: Any) -> set[str]:
    """Return all keys of data, at any depth, besides those of maps."""
    if isinstance(data, list):
        return set().union(*map(keys, data))
    if not isinstance(data, dict):
        return set()
    return set(data).union(*(keys(value) for name, value in data.items() if name not in MAPS))


def described() -> dict[str, set[str]]:
    """Return what the page says, by verb."""
    table = PAGE.read_text("utf-8").partition("## Keys of the other verbs")[2]
    rows = re.findall(r"^\| (`.*?) \| (.*?) \| .*\|$", table, re.MULTILINE)
    return {
        verb: set(re.findall(r"`(\w+)`", cell))
        for names, cell in rows
        for verb in re.findall(r"`(.*?)`", names)
    }


def test_the_page_has_every_verb() -> None:
    assert described().keys() == VERBS.keys() - {"status"}


@pytest.mark.parametrize("verb", sorted(VERBS.keys() - {"status"}))
def test_the_page_has_the_keys_of_each_verb(
    verb: str, console: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("correct horse battery\n"))
    if verb == "verify":
        Source(tmp_path / "source").copy(ArchiveFolder(str(tmp_path / "archive")), range(3, 11))
    ctl = console(ANSWERS)
    words = [*verb.split(), *WORDS.get(verb, "").format(folder=tmp_path).split()]
    assert ctl(*words, "--json") == 0, ctl.out + ctl.err
    assert keys(json.loads(ctl.out)) - {"hint"} == described()[verb]
