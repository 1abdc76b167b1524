"""Output that scripts of operators parse, to the letter (recorded from another implementation)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from neo.protocol.enums import CellState, ClusterState, ErrorCode, NodeState, NodeType
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import ZERO_TID, p64
from neo.protocol.packets import (
    AddPendingNodes,
    AnswerCheckReport,
    AnswerMonitorInformation,
    AnswerNodeList,
    AnswerPartitionList,
    AnswerTweakPartitionTable,
    AskCheckReport,
    AskElection,
    AskMonitorInformation,
    AskNodeList,
    AskPartitionList,
    CheckReplicas,
    EndTransaction,
    Error,
    FlushLog,
    ForgetTable,
    Message,
    NodeRow,
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
from neoctl.__main__ import main
from neoctl.verbs import VERBS
from tests.unit.neoctl.conftest import ELECTION, M2, ROWS, SUMMARY, Make

NODE_TABLE = """\
A1 | ADMIN   | 127.0.0.1:2003 | RUNNING | 2026-11-20 12:33:11.414714
M1 | MASTER  | 127.0.0.1:2001 | RUNNING | None
S1 | STORAGE | 127.0.0.1:2101 | RUNNING | 2026-11-20 12:33:11.445111
S2 | STORAGE | 127.0.0.1:2102 | RUNNING | 2026-11-20 12:33:11.448297
S3 | STORAGE | 127.0.0.1:2103 | RUNNING | 2026-11-20 12:33:11.461422
"""


@pytest.mark.parametrize(
    ("words", "answers", "output"),
    [
        ("print cluster", {}, "RUNNING\n"),
        ("print primary", {}, "M1\n"),
        ("print node", {}, NODE_TABLE),
        (
            "print node storage",
            {},
            "".join(NODE_TABLE.splitlines(keepends=True)[2:]),
        ),
        (
            "print pt",
            {},
            "# ptid: 1, replicas: 1\nS1 R UU.UU.\nS2 R U.UU.U\nS3 R .UU.UU\n",
        ),
        (
            "print pt 0 3",
            {AskPartitionList: AnswerPartitionList(1, 1, ROWS[:3])},
            "# ptid: 1, replicas: 1\n"
            "000 | S1 - UP_TO_DATE | S2 - UP_TO_DATE |\n"
            "001 | S1 - UP_TO_DATE | S3 - UP_TO_DATE |\n"
            "002 | S2 - UP_TO_DATE | S3 - UP_TO_DATE |\n",
        ),
        (
            "print pt 4 6 S1",
            {AskPartitionList: AnswerPartitionList(1, 1, ROWS[4:])},
            "# ptid: 1, replicas: 1\n004 | S1 - UP_TO_DATE | S3 - UP_TO_DATE |\n",
        ),
        (
            "print pt 0 2 S3",  # it has no cell there
            {AskPartitionList: AnswerPartitionList(1, 1, ROWS[:1])},
            "# ptid: 1, replicas: 1\n",
        ),
        (
            "print ids",
            {},
            "last_oid = 0x0\nlast_tid = 0x0 (1900-01-01 00:00:00)\nlast_ptid = 1\n",
        ),
        ("print summary", {}, f"# {{}}\n{SUMMARY}\n"),
        (
            "print summary",
            {AskMonitorInformation: AnswerMonitorInformation([None], ["bak"], "text")},
            '# {"warnings": [null], "problems": ["bak"]}\ntext\n',
        ),
        (
            "tweak -n",
            {TweakPartitionTable: AnswerTweakPartitionTable(False, ROWS)},
            "No change done.\n",
        ),
        ("set replicas 1", {SetNumReplicas: ""}, "\n"),
        ("start", {SetClusterState: "Cluster state changed"}, "Cluster state changed\n"),
        ("admit all", {}, "No node added\n"),
        ("add all", {}, "No node added\n"),
        ("add M2", {AddPendingNodes: "Nodes added: M2"}, "Nodes added: M2\n"),
        ("admit S2", {AddPendingNodes: "Nodes added: S2"}, "Nodes added: S2\n"),
        ("set sync bak off", {SetSync: "off"}, "off\n"),
        ("kill S2", {SetNodeState: "state changed"}, "state changed\n"),
        ("flush_log", {}, ""),
    ],
)
def test_output_is_the_recorded_one(
    console: Make, words: str, answers: dict[type[Message], Any], output: str
) -> None:
    """Specification 17.27."""
    ctl = console(answers)
    assert ctl(*words.split()) == 0
    assert (ctl.out, ctl.err) == (output, "")


@pytest.mark.parametrize(
    ("words", "question", "text", "hint"),
    [
        ("kill S9", SetNodeState, "unknown node", "'neoctl print node' lists the nodes"),
        ("kill M1", SetNodeState, "can not kill primary master node", ""),
        ("drop S1", SetNodeState, "a running node must be stopped before removal", ""),
        ("set cluster recovering", SetClusterState, "Invalid state requested", ""),
        ("start", SetClusterState, "Can not switch to this state", ""),
    ],
)
def test_refusal_is_alone_on_stdout_and_what_to_do_on_stderr(
    console: Make, words: str, question: type[Message], text: str, hint: str
) -> None:
    """Specification 17.29."""
    ctl = console({question: ErrorAnswer(ErrorCode.DENIED, text)})
    assert ctl(*words.split()) == 1
    assert ctl.out == f"{text}\n"
    assert ctl.err.startswith(f"neoctl: {hint}")
    assert ctl.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("set replicas 2", ""),
        (
            "set replicas 7",
            "3 storage nodes can keep 3 of the 8 copies: start storage nodes, then: neoctl add all",
        ),
        ("check 2:", "1 partition is compared; what is found: neoctl print check"),
        (
            "check 50",
            "6 partitions are compared; what is found: neoctl print check. 50 is taken as a TID; "
            "partition 50 would be written 50:",
        ),
        ("check 0x50", "6 partitions are compared; what is found: neoctl print check"),
        ("check 1: 50", "1 partition is compared; what is found: neoctl print check"),
    ],
)
def test_what_may_be_a_mistake_is_explained_beside_the_answer(
    console: Make, words: str, hint: str
) -> None:
    ctl = console({SetNumReplicas: "", CheckReplicas: ""})
    assert ctl(*words.split()) == 0
    assert (ctl.out, ctl.err) == ("\n", f"neoctl: {hint}\n" if hint else "")
    assert ctl("--json", *words.split()) == 0
    assert json.loads(ctl.out).get("hint", "") == hint and ctl.err == ""


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("stauts", "did you mean 'neoctl status'? 'neoctl --help' lists the commands"),
        ("trunacte 0x10", "did you mean 'neoctl truncate'? 'neoctl --help' lists the commands"),
        ("print idz", "did you mean 'neoctl print ids'? 'neoctl --help' lists the commands"),
        ("set replica 1", "did you mean 'neoctl set replicas'? 'neoctl --help' lists the commands"),
        ("set", "write one of: set cluster, set primary, set replicas, set sync, set partitions"),
        ("frobnicate", "'neoctl --help' lists the commands"),
    ],
)
def test_what_was_probably_meant_is_told(console: Make, words: str, hint: str) -> None:
    """The words that scripts know are alone on stdout (specification 17.29)."""
    ctl = console()
    assert ctl(*words.split()) == 1
    assert (ctl.out, ctl.err) == (f"invalid command: {words}\n", f"neoctl: {hint}\n")
    assert ctl.admin.asked == []


def test_print_alone_lists_its_questions(console: Make) -> None:
    ctl = console()
    assert ctl("print") == 1
    assert ctl.out == "invalid command: print\n"
    questions = [name for name in VERBS if name.startswith("print ")]
    assert len(questions) > 6 and all(name in ctl.err for name in questions)


def test_help_is_a_command_that_asks_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help"]) == 0
    out = capsys.readouterr().out
    assert all(verb.usage in out for verb in VERBS.values())
    assert main(["help", "set"]) == 0
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == [
        "neoctl set cluster STATE",
        "neoctl set primary NODE",
        "neoctl set replicas N",
        "neoctl set sync NAME on|off",
        "neoctl set partitions [-n] N",
    ]
    assert main(["--json", "help", "kill"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["commands"]
    assert found["usage"] == "kill NODE"
    assert main(["help", "kil"]) == 1
    out, err = capsys.readouterr()
    assert out == "invalid command: kil\n" and "did you mean 'neoctl kill'" in err


@pytest.mark.parametrize(
    ("words", "sent"),
    [
        ("start", SetClusterState(ClusterState.VERIFYING)),
        ("set cluster Stopping", SetClusterState(ClusterState.STOPPING)),
        ("set replicas 2", SetNumReplicas(2)),
        ("set sync bak on", SetSync("bak", True)),
        ("set sync bak off", SetSync("bak", False)),
        ("drop S3", SetNodeState(3, NodeState.UNKNOWN)),
        ("kill s3", SetNodeState(3, NodeState.DOWN)),
        ("admit S2 S4", AddPendingNodes([2, 4])),
        ("truncate 0x10", Truncate(bytes(7) + b"\x10")),
        ("truncate 16", Truncate(bytes(7) + b"\x10")),
        ("end 0x10", EndTransaction(bytes(7) + b"\x10")),
        ("prune_orphan 1 S1 S2", Repair([1, 2], True)),
        ("prune_orphan 0 S1", Repair([1], False)),
        ("prune_orphan 1 all", Repair([1, 2, 3], True)),
        ("check", CheckReplicas(dict.fromkeys(range(6)), ZERO_TID, None)),
        ("check 0:S1 1: 7", CheckReplicas({0: 1, 1: None}, bytes(7) + b"\x07", None)),
        ("check :S2 1 2", CheckReplicas(dict.fromkeys((0, 2, 3, 5), 2), p64(1), p64(2))),
        ("check :S2 0:S1 5:", CheckReplicas({0: 1, 2: 2, 3: 2, 5: None}, ZERO_TID, None)),
        ("check 0:S1 : 0:S1", CheckReplicas({**dict.fromkeys(range(6)), 0: 1}, ZERO_TID, None)),
        ("check :S9", CheckReplicas(dict.fromkeys(range(6), 9), ZERO_TID, None)),
    ],
)
def test_words_become_the_message(console: Make, words: str, sent: Message) -> None:
    """Specification 17.26, 17.31."""
    ctl = console({type(sent): "done"})
    assert ctl(*words.split()) == 0
    assert ctl.out == "done\n"
    assert ctl.admin.asked[-1] == sent


def test_admit_all_takes_the_pending_storages(console: Make) -> None:
    nodes: list[NodeRow] = [
        (NodeType.STORAGE, None, 7, NodeState.PENDING, 1.0),
        (NodeType.STORAGE, None, 5, NodeState.PENDING, 1.0),
        (NodeType.STORAGE, None, 6, NodeState.DOWN, 1.0),
    ]
    ctl = console({AskNodeList: AnswerNodeList(nodes), AddPendingNodes: "Nodes added: S5, S7"})
    assert ctl("admit", "all") == 0
    assert ctl.admin.asked == [AskNodeList(NodeType.STORAGE), AddPendingNodes([5, 7])]


@pytest.mark.parametrize("option", ["-n", "--dry-run"])
def test_dry_run_may_stand_before_or_after_the_nodes(console: Make, option: str) -> None:
    ctl = console({TweakPartitionTable: AnswerTweakPartitionTable(True, ROWS)})
    for words in (["tweak", option, "S1"], ["tweak", "S1", option], [option, "tweak", "S1"]):
        assert ctl(*words) == 0
        assert TweakPartitionTable(True, [1]) in ctl.admin.asked
        assert TweakPartitionTable(False, [1]) not in ctl.admin.asked
    assert ctl.out == "It would become:\nS1 R UU.UU.\nS2 R U.UU.U\nS3 R .UU.UU\n"
    assert ctl("tweak") == 0
    assert TweakPartitionTable(False, []) in ctl.admin.asked
    assert ctl.out.startswith("The partition table becomes:\n")


def test_flush_log_waits_until_the_admin_node_has_taken_it(console: Make) -> None:
    ctl = console()
    assert ctl("flush_log") == 0
    assert FlushLog() in ctl.admin.asked
    assert type(ctl.admin.asked[-1]).__name__ == "Ping"


def test_cells_have_their_letters_and_nodes_the_initial_of_their_state(console: Make) -> None:
    """Specification 17.28."""
    row = [
        (1, CellState.UP_TO_DATE),
        (2, CellState.OUT_OF_DATE),
        (3, CellState.FEEDING),
        (10, CellState.CORRUPTED),
    ]
    nodes: list[NodeRow] = [
        (NodeType.STORAGE, None, nid, state, None)
        for nid, state in (
            (1, NodeState.RUNNING),
            (2, NodeState.DOWN),
            (3, NodeState.PENDING),
            (10, NodeState.RUNNING),
        )
    ]
    ctl = console(
        {
            AskNodeList: AnswerNodeList(nodes),
            AskPartitionList: AnswerPartitionList(7, 2, [row, []]),
        }
    )
    assert ctl("print", "pt") == 0
    assert ctl.out == "# ptid: 7, replicas: 2\nS1  R U.\nS2  D O.\nS3  P F.\nS10 R C.\n"


def test_node_without_address_keeps_its_columns(console: Make) -> None:
    """Specification 17.28."""
    nodes: list[NodeRow] = [
        (NodeType.STORAGE, None, 2, NodeState.DOWN, None),
        (NodeType.STORAGE, ("::1", 21), 10, NodeState.RUNNING, None),
    ]
    ctl = console({AskNodeList: AnswerNodeList(nodes)})
    assert ctl("print", "node") == 0
    assert ctl.out == (
        "S2  | STORAGE |          | DOWN    | None\nS10 | STORAGE | [::1]:21 | RUNNING | None\n"
    )
    ctl = console({AskNodeList: AnswerNodeList(nodes[:1])})
    assert ctl("print", "node") == 0
    assert ctl.out == "S2 | STORAGE |  | DOWN | None\n"


CORRUPTED = [
    [(1, CellState.UP_TO_DATE), (2, CellState.CORRUPTED)],
    [(1, CellState.CORRUPTED), (3, CellState.UP_TO_DATE)],
    [(2, CellState.CORRUPTED), (3, CellState.UP_TO_DATE)],
]


@pytest.mark.parametrize(
    ("words", "cells"),
    [
        ("repair", [(0, 2), (1, 1), (2, 2)]),
        ("repair 1:", [(1, 1)]),
        ("repair :S2", [(0, 2), (2, 2)]),
        ("repair :S2 1:S1", [(0, 2), (2, 2), (1, 1)]),
        ("repair 2:S3", [(2, 3)]),  # it is not corrupted: the master says so
    ],
)
def test_repair_names_the_corrupted_cells(
    console: Make, words: str, cells: list[tuple[int, int]]
) -> None:
    ctl = console({AskPartitionList: AnswerPartitionList(7, 1, CORRUPTED), RepairCells: "done"})
    assert ctl(*words.split()) == 0
    assert ctl.out == "done\n"
    assert ctl.admin.asked[-1] == RepairCells(cells)


@pytest.mark.parametrize("words", ["repair", "repair :", "repair 0:", "repair :S2"])
def test_whether_there_is_nothing_to_repair_is_said_by_the_master(
    console: Make, words: str
) -> None:
    """Of a cluster that does not serve, nobody knows."""
    ctl = console({RepairCells: "No cell to repair"})
    assert ctl(*words.split()) == 0
    assert ctl.out == "No cell to repair\n"
    assert ctl.admin.asked == [AskPartitionList(0, 0, None), RepairCells([])]


def test_what_a_check_found_is_shown_worst_first_and_equal_ones_as_a_count(console: Make) -> None:
    ctl = console()
    assert ctl.lines("print", "check")[-1].endswith("neoctl check"), "there was none yet"
    rows = [
        (4, 1, "undecided", "S1 and S2 differ"),
        (2, 1, "running", ""),
        (0, 1, "equal", ""),
        (1, None, "alone", "one readable copy"),
    ]
    ctl = console({AskCheckReport: AnswerCheckReport(ZERO_TID, p64(16), rows)})
    assert ctl.lines("print", "check") == [
        "# transactions 0x0000000000000000 to 0x0000000000000010:"
        " alone=1, equal=1, running=1, undecided=1",
        "004 | undecided | S1 and S2 differ",
        "002 | running",
    ]


def test_masters_are_shown_with_their_logs(console: Make) -> None:
    ctl = console({AskElection: ELECTION})
    assert ctl("print", "masters") == 0
    assert ctl.out == (
        "# epoch 3, lease 1.8 s, log 17, partition table 4\n"
        "M1 | 127.0.0.1:2001 | primary   | 17\n"
        "M2 | 127.0.0.1:2002 | secondary | 17\n"
        "M3 | 127.0.0.1:2010 | secondary | 12 | is not heard\n"
    )


def test_handing_over_and_giving_up_a_table(console: Make) -> None:
    ctl = console(
        {SetPrimary: Error(0, "M2 becomes the primary master"), ForgetTable: Error(0, "")}
    )
    assert ctl("set", "primary", "M2") == 0
    assert ctl.out == "M2 becomes the primary master\n"
    assert ctl.admin.asked == [SetPrimary(M2)]
    assert ctl("forget_table", "7") == 0
    assert ctl.admin.asked == [ForgetTable(7)]
