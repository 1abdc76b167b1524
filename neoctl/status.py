"""``neoctl status``: the cluster on one screen, its problems, and what to do about them.

:func:`find_problems` is a pure function from states and tables to sentences.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import Any, NamedTuple

from msgspec.structs import asdict
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from neo.admin.monitor import SERVING, tid_date
from neo.protocol.enums import CellState, ClusterState, ErrorCode, NodeState, NodeType
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import ZERO_TID, format_nid, tid_from_time, time_from_tid
from neo.protocol.packets import (
    A,
    AskCheckReport,
    AskClusterState,
    AskDownNodes,
    AskElection,
    AskLastIDs,
    AskLastTransaction,
    AskNodeList,
    AskObstacle,
    AskPartitionList,
    AskPrimary,
    AskScrub,
    AskUpstream,
    Request,
)
from neoctl import render
from neoctl.blocking import blocking, open_transactions
from neoctl.client import AdminAway, AdminClient
from neoctl.verbs import Reply

#: More partitions than this are shown as counts instead of letters.
LETTERS_MOST = 64
#: Columns if the output is not a terminal, so that no line is broken.
FILE_WIDTH = 200
#: Exit code: something does not work now.
EXIT_PROBLEM = 3
#: Exit code: this backup does not hear its upstream cluster.
EXIT_UNHEARD = 1

Data = dict[str, Any]
COLOURS = {
    "RUNNING": "green",
    "BACKINGUP": "green",
    "PENDING": "yellow",
    "DOWN": "red",
    "problem": "bold red",
    "warning": "yellow",
}
SINCE = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


class Problem(NamedTuple):
    """``severity``: ``problem`` if something does not work now, ``warning`` if it may not work soon."""

    severity: str
    text: str
    advice: str


def status_reply(admin: AdminClient) -> Reply:
    """Ask everything, and return the screen and its data.

    Data: ``state primary``; ``election`` (see ``render.election_data``, null if there is one master);
    ``upstream`` (of a backup: ``cluster heard ever seconds reason``, else null); ``last_oid last_tid
    last_tid_date``; ``nodes`` (see ``render.node_data``; storage nodes also have ``cells``, state ->
    count, and ``says`` if down); ``ptid replicas partitions``; ``can_lose`` (storage nodes that may be
    lost without losing service, null if the cluster does not serve); ``scrub`` (see AnswerScrub; null if
    copies are not compared in the background); ``problems`` (``severity text advice`` of each).
    """
    state = admin.ask(AskClusterState()).state
    primary = format_nid(admin.ask(AskPrimary()).primary_nid)
    last_oid = admin.ask(AskLastIDs()).loid
    last_tid = admin.ask(AskLastTransaction()).tid
    nodes = render.node_data(admin.ask(AskNodeList(None)).node_list)
    answer = admin.ask(AskPartitionList(0, 0, None))
    table = render.table_data(answer.ptid, answer.num_replicas, answer.row_list)
    for node in nodes:
        if node["type"] == NodeType.STORAGE.name:
            node["cells"] = dict(
                Counter(
                    row["cells"][node["nid"]]
                    for row in table["partitions"]
                    if node["nid"] in row["cells"]
                )
            )
    _add_words(admin, nodes)
    election = _election(admin)
    upstream = _upstream(admin, state)
    problems = [
        *_check_problems(admin),
        *find_upstream_problems(upstream, nodes),
        *(
            Problem("problem", text, advice)
            for text, advice in blocking(open_transactions(admin))
        ),
        *find_problems(state, nodes, table, _obstacle(admin, state), election),
        *find_master_problems(election),
    ]
    data = {
        "state": None if state is None else state.name,
        "primary": primary,
        "election": election,
        "upstream": upstream,
        "last_oid": render.hex_id(last_oid),
        "last_tid": render.hex_id(last_tid),
        "last_tid_date": tid_date(last_tid),
        "nodes": nodes,
        **table,
        "can_lose": can_lose(nodes, table) if state in SERVING else None,
        "scrub": _scrub(admin),
        "problems": [problem._asdict() for problem in problems],
    }
    worst = any(problem.severity == "problem" for problem in problems)
    age = time.time() - time_from_tid(last_tid) if last_tid != ZERO_TID else None
    code = EXIT_PROBLEM if worst else 0
    if upstream is not None and not upstream["heard"]:
        code = EXIT_UNHEARD
    return Reply(to_text(data, age), data, code)


# -- questions of extensions -----------------------------------------------------------------------


def _asked(admin: AdminClient, question: Request[A]) -> A | None:
    """Return the answer, or None if the master does not know the question or it does not apply."""
    try:
        return admin.ask(question)
    except ErrorAnswer as e:
        if e.code is ErrorCode.DENIED:
            return None
        raise


def _add_words(admin: AdminClient, nodes: list[Data]) -> None:
    """Add ``says`` to storage nodes that are down: the message of the process, empty if it runs without a
    message, null if it is not reached."""
    down = [node for node in nodes if node["type"] == "STORAGE" and node["state"] == "DOWN"]
    said = dict(admin.ask(AskDownNodes()).node_list) if down else {}
    words = {format_nid(nid): text for nid, text in said.items()}
    for node in down:
        node["says"] = words.get(node["nid"])


def _upstream(admin: AdminClient, state: ClusterState | None) -> Data | None:
    if state not in (ClusterState.STARTING_BACKUP, ClusterState.BACKINGUP):
        return None
    answer = _asked(admin, AskUpstream())
    if answer is None:
        return None
    return {
        "cluster": answer.cluster,
        "heard": answer.seconds is None,
        "ever": answer.ever,
        "seconds": answer.seconds,
        "reason": answer.reason,
    }


def _obstacle(admin: AdminClient, state: ClusterState | None) -> Data | None:
    """Return what a cluster in RECOVERING waits for."""
    if state is not ClusterState.RECOVERING:
        return None
    answer = _asked(admin, AskObstacle())
    return None if answer is None else asdict(answer)


# -- judgement -----------------------------------------------------------------------------------


def _readable(nodes: list[Data], row: Data) -> int:
    """Return the number of running nodes that can read a partition."""
    running = {node["nid"] for node in nodes if node["state"] == NodeState.RUNNING.name}
    return sum(nid in running and CellState[state].readable for nid, state in row["cells"].items())


def can_lose(nodes: list[Data], table: Data) -> int:
    """Return the number of storage nodes, whichever they are, that may be lost without losing service."""
    counts = [_readable(nodes, row) for row in table["partitions"]]
    return max(min(counts, default=0) - 1, 0)


def find_problems(
    state: ClusterState | None,
    nodes: list[Data],
    table: Data,
    obstacle: Data | None = None,
    election: Data | None = None,
) -> list[Problem]:
    """Return all problems, the worst first. Each advice can be followed in the state for which it is
    given; tests follow it."""
    problems = [
        *_state_problems(state, nodes, table, obstacle),
        *_node_problems(state, nodes, election),
        *_cell_problems(state, nodes, table),
    ]
    return sorted(problems, key=lambda problem: problem.severity)


def _down(nodes: list[Data]) -> list[str]:
    """Return the storage nodes that are DOWN."""
    return [node["nid"] for node in nodes if node["type"] == "STORAGE" and node["state"] == "DOWN"]


def find_upstream_problems(upstream: Data | None, nodes: list[Data]) -> list[Problem]:
    """Return the problem of a backup that gets nothing, although its tables look complete."""
    if upstream is None or upstream["heard"]:
        return []
    reason, seconds = upstream["reason"], upstream["seconds"]
    if not upstream["cluster"]:
        return [
            Problem(
                "problem",
                f"this cluster is a backup, but follows no other: {reason}",
                "set it and start the masters again; if it is to be a backup no more: "
                "neoctl set cluster stopping_backup",
            )
        ]
    moment = tid_date(tid_from_time(time.time() - seconds)).partition(".")[0]
    name, since = repr(upstream["cluster"]), f"{moment} UTC, {duration(seconds)} ago"
    text = f"this backup gets nothing from its upstream cluster {name} since {since}: {reason}"
    if not upstream["ever"]:
        text = f"this backup never reached its upstream cluster {name}, and tries since {since}: {reason}"
    if _down(nodes):  # backup mode can end only when all nodes are present
        return [
            Problem(
                "problem", text, "start the upstream cluster, or mend the network between the two"
            )
        ]
    return [
        Problem(
            "problem",
            text,
            "start the upstream cluster, or mend the network between the two; if that cluster is lost "
            "for ever: neoctl set cluster stopping_backup",
        )
    ]


def _check_problems(admin: AdminClient) -> list[Problem]:
    """Return what the last check, or the comparison at the start, leaves to the operator."""
    report = _asked(admin, AskCheckReport())
    rows = [] if report is None else report.row_list
    problems = [
        Problem("problem", f"the copies of partition {partition} differ", text)
        for partition, _, finding, text in rows
        if finding == "undecided"
    ]
    behind = sum(finding == "behind" for _, _, finding, _ in rows)
    if behind:
        text = f"{behind} partitions had copies that lacked transactions when the cluster started"
        problems.append(
            Problem(
                "warning",
                text,
                "neoctl print check; suspect the disks of the nodes that it names; wait until all is"
                " copied; neoctl check",
            )
        )
    return problems


def _election(admin: AdminClient) -> Data | None:
    """Return the state of the election, None if there is one master."""
    answer = _asked(admin, AskElection())
    return None if answer is None else render.election_data(answer)


def _voting(election: Data) -> tuple[int, int]:
    """Return (masters that run and vote, all members)."""
    members = [row for row in election["masters"] if row["role"] != "pending"]
    return sum(not row["note"] or "behind" in row["note"] for row in members), len(members)


def _may_grow(election: Data | None) -> bool:
    """Return whether the voting masters would be a majority with one more member."""
    if election is None:
        return True
    voting, masters = _voting(election)
    return 2 * voting > masters + 1


def _scrub(admin: AdminClient) -> Data | None:
    try:
        answer = _asked(admin, AskScrub())
    except AdminAway:
        answer = None  # an admin node of an earlier version closes; this is the last question
    if answer is None:
        return None  # a master without a scrub
    if not answer.period:
        return None
    return {
        "period_seconds": answer.period,
        "begun": answer.begun,
        "round_end": answer.round_end,
        "compared": answer.compared,
    }


def find_master_problems(election: Data | None) -> list[Problem]:
    """Return the problems of the election, which the node table does not show."""
    if election is None:
        return []
    members = [row for row in election["masters"] if row["role"] != "pending"]
    problems = [
        Problem("warning", f"{row['nid']} {row['note']}", "nothing, unless it stays so")
        for row in members
        if row["note"] and row["note"] != "is not heard"
    ]
    voting, masters = _voting(election)
    if voting - 1 <= masters // 2 and voting < masters:
        text = f"{voting} of {masters} masters run and vote: no other may fail"
        away = [row["nid"] for row in members if row["note"] == "is not heard"]
        if away:
            lost = away[0]
            problems.append(
                Problem(
                    "warning",
                    text,
                    f"start {_join(away)}; if {lost} is lost for ever: neoctl drop {lost}",
                )
            )
        else:
            problems.append(Problem("warning", text, "start the others, and wait until they vote"))
    return problems


def _state_problems(
    state: ClusterState | None, nodes: list[Data], table: Data, obstacle: Data | None
) -> list[Problem]:
    if state in SERVING:
        return []
    if state is ClusterState.RECOVERING:
        return [_recovery_problem(nodes, table, obstacle)]
    if state is None:
        return [Problem("problem", "the master has not told the state yet", "ask again")]
    if state is ClusterState.STARTING_BACKUP:
        text = "this backup waits for its upstream cluster, and serves no application"
        return [
            Problem("problem", text, "the log of the master says why; start the upstream cluster")
        ]
    return [
        Problem("problem", f"the cluster is {state.name} and serves no application", "ask again")
    ]


def _recovery_problem(nodes: list[Data], table: Data, obstacle: Data | None) -> Problem:
    """Return why the cluster does not start. ``obstacle``: None if the master does not tell."""
    storages = [node["nid"] for node in nodes if node["type"] == NodeType.STORAGE.name]
    forced = "" if obstacle is None else obstacle["forced"]
    if table["ptid"] is None and storages:
        if forced:
            return Problem(
                "problem",
                f"the cluster cannot start: {forced}",
                "start the storage nodes that have its data; see their logs",
            )
        return Problem(
            "problem",
            f"no database was created yet; {_join(storages)} wait for it",
            "when all storage nodes are there: neoctl start",
        )
    rows = table["partitions"]
    # If all data is present, it waits because a missing node may have later commits.
    lacking = [row for row in rows if not _present(nodes, row)] or rows
    missing = sorted({nid for row in lacking for nid in row["cells"]} & set(_down(nodes)))
    what = f"storage nodes: {_join(missing)}" if missing else "storage nodes"
    text = f"the cluster waits for {what}"
    if obstacle is not None and obstacle["reason"]:
        text += f" ({obstacle['reason']})"
    if obstacle is None or forced:
        return Problem("problem", text, "start them; see their logs")
    return Problem(
        "problem",
        text,
        "start them; see their logs; if they are lost for ever, and with them what they alone have: "
        "neoctl start",
    )


def _present(nodes: list[Data], row: Data) -> bool:
    there = {node["nid"] for node in nodes if node["state"] != NodeState.DOWN.name}
    return any(nid in there and CellState[state].readable for nid, state in row["cells"].items())


def _node_problems(
    state: ClusterState | None, nodes: list[Data], election: Data | None
) -> list[Problem]:
    problems = []
    for node in nodes:
        if node["state"] == NodeState.DOWN.name:
            if node["type"] == NodeType.STORAGE.name:
                problems.append(_storage_down(node, state, nodes))
            else:
                problems.append(_master_down(node))
        elif node["state"] == NodeState.PENDING.name and state in SERVING:
            problems.append(_pending(node, nodes, election))
    return problems


def _named(node: Data) -> str:
    return f"{node['nid']} ({node['address'] or 'address unknown'})"


def _storage_down(node: Data, state: ClusterState | None, nodes: list[Data]) -> Problem:
    nid, text, says = node["nid"], f"{_named(node)} is down", node.get("says")
    if says:
        text += f", but its process runs, and says: {says}"
        return Problem("problem", text, "mend that: the node comes back by itself")
    if says is not None:
        text += ", but its process runs"
        return Problem("problem", text, "its log says why; look at the network to the master")
    if state not in SERVING:
        return Problem("problem", text, "start neostorage there")
    if len(_down(nodes)) > 1:  # a tweak is refused until all are back or dropped
        return Problem(
            "problem", text, f"start neostorage there; if it is lost for ever: neoctl drop {nid}"
        )
    return Problem(
        "problem",
        text,
        f"start neostorage there; if it is lost for ever: neoctl drop {nid}, then neoctl tweak",
    )


def _master_down(node: Data) -> Problem:
    nid, text = node["nid"], f"{_named(node)} is down"
    if nid == "?":
        return Problem("problem", text, "start neomaster there")
    return Problem(
        "problem", text, f"start neomaster there; if it is lost for ever: neoctl drop {nid}"
    )


def _pending(node: Data, nodes: list[Data], election: Data | None) -> Problem:
    nid, text = node["nid"], f"{_named(node)} is connected but not used"
    if node["type"] != NodeType.STORAGE.name:
        if _may_grow(election):
            return Problem("warning", text, f"neoctl add {nid}")
        return Problem("warning", text, f"start the other masters; then: neoctl add {nid}")
    if _down(nodes):
        return Problem("warning", text, f"neoctl add {nid}")
    return Problem("warning", text, f"neoctl add {nid}, then neoctl tweak")


def _cell_problems(state: ClusterState | None, nodes: list[Data], table: Data) -> list[Problem]:
    problems = []
    by_state: dict[str, Counter[str]] = {}
    for row in table["partitions"]:
        for nid, cell in row["cells"].items():
            by_state.setdefault(cell, Counter())[nid] += 1
    running = {node["nid"] for node in nodes if node["state"] == NodeState.RUNNING.name}
    corrupted = by_state.get(CellState.CORRUPTED.name, Counter[str]())
    for nid, count in sorted(corrupted.items()) if state in SERVING else ():
        text = f"{count} partitions of {nid} differ from their replicas and are not used"
        if nid in running:
            advice = Problem(
                "warning", text, f"copy them anew: neoctl repair :{nid}; suspect its disk"
            )
        else:
            advice = Problem(
                "warning", text, f"start it, then: neoctl repair :{nid}; suspect its disk"
            )
        problems.append(advice)
    outdated = by_state.get(CellState.OUT_OF_DATE.name, Counter[str]())
    for nid, count in sorted(outdated.items()):
        if nid in running:
            problems.append(
                Problem(
                    "warning", f"{nid} is copying {count} partitions", "nothing, it takes a while"
                )
            )
    if state in SERVING and can_lose(nodes, table) < table["replicas"]:
        problems.append(_copies_problem(nodes, table))
    return problems


def _copies_problem(nodes: list[Data], table: Data) -> Problem:
    copies, wanted = can_lose(nodes, table) + 1, table["replicas"] + 1
    text = f"fewer copies than wanted: {copies} of {wanted} for some partitions"
    if _down(nodes):
        return Problem("warning", text, "bring back, or drop, what is down; then: neoctl tweak")
    running = sum(
        node["type"] == NodeType.STORAGE.name and node["state"] == NodeState.RUNNING.name
        for node in nodes
    )
    if running < wanted:
        return Problem("warning", text, "add storage nodes: neoctl add all; then: neoctl tweak")
    return Problem("warning", text, "neoctl tweak; then wait until all is copied")


# -- text ----------------------------------------------------------------------------------------


def _join(names: list[str]) -> str:
    return ", ".join(names)


def duration(seconds: float) -> str:
    """Return ``3 hours``: the largest unit, rounded down."""
    for size, name in SINCE:
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {name}{'s' if count > 1 else ''}"
    return "less than a second"


def to_text(data: Data, age: float | None) -> str:
    """Return the screen, with colours if stdout is a terminal. ``age``: of the last tid, in seconds."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else FILE_WIDTH)
    with console.capture() as capture:
        for part in _screen(data, age):
            # A terminal breaks long sentences itself, and joins them when it is widened.
            console.print(part, soft_wrap=isinstance(part, Text))
    return "\n".join(line.rstrip() for line in capture.get().rstrip("\n").split("\n"))


def _screen(data: Data, age: float | None) -> list[Any]:
    state = data["state"] or "UNKNOWN"
    title = Text.assemble(
        ("NEO cluster ", "bold"),
        (state, f"bold {COLOURS.get(state, 'yellow')}"),
        f"   primary master {data['primary']}",
        "" if data["election"] is None else f", {render.election_line(data['election'])}",
    )
    if age is None:
        last = Text("no transaction yet")
    else:
        when = f"{duration(age)} ago" if age >= 0 else "in the future: check the clocks"
        last = Text(
            f"last transaction {data['last_tid_date']} UTC, {when}   tid {data['last_tid']}"
        )
    return [
        title,
        last,
        Text(_table_sentence(data)),
        *_scrub_sentence(data, time.time()),
        Text(),
        Padding(_node_table(data), (0, 0, 1, 0)),
        *_problem_lines(data["problems"]),
    ]


def _table_sentence(data: Data) -> str:
    if data["ptid"] is None:
        return "no partition table yet"
    replicas = data["replicas"]
    text = (
        f"{len(data['partitions'])} partitions, {replicas} replica{'s' if replicas != 1 else ''}, "
        f"partition table {data['ptid']}"
    )
    lose = data["can_lose"]
    if lose:
        text += f"; any {lose} storage node{'s' if lose > 1 else ''} may fail"
    elif lose == 0:
        text += "; no storage node may fail"
    return text


def _scrub_sentence(data: Data, now: float) -> list[Text]:
    """Return a sentence about the comparison of copies, if there are copies."""
    scrub = data["scrub"]
    if scrub is None or not data["replicas"]:
        return []
    text = f"copies are compared in the background, all in {duration(scrub['period_seconds'])}: "
    if scrub["round_end"] is not None:
        text += f"the last round ended {_ago(now - scrub['round_end'])}"
    else:
        text += (
            f"{scrub['compared']} of {len(data['partitions'])} partitions since the master began"
            f" {_ago(now - scrub['begun'])}"
        )
    return [Text(text)]


def _ago(seconds: float) -> str:
    return f"{duration(max(seconds, 0.0))} ago"


def _node_table(data: Data) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("node", "type", "address", "state", "partitions"):
        table.add_column(name, no_wrap=name != "partitions")
    for node in data["nodes"]:
        table.add_row(
            node["nid"],
            node["type"].lower(),
            node["address"] or "-",
            Text(node["state"], COLOURS.get(node["state"], "")),
            _cells(data, node),
        )
    return table


def _cells(data: Data, node: Data) -> Text:
    if "cells" not in node or not data["partitions"]:
        return Text()
    if len(data["partitions"]) > LETTERS_MOST:
        counts = (f"{count} {state}" for state, count in sorted(node["cells"].items()))
        return Text(_join(list(counts)))
    text = Text(render.letters(data, node["nid"]))
    text.highlight_regex("U+", "green")
    text.highlight_regex("[OF]+", "yellow")
    text.highlight_regex("C+", "red")
    return text


def _problem_lines(problems: list[Data]) -> list[Text]:
    if not problems:
        return [Text("No problem.", "green")]
    return [
        Text.assemble(
            (f"{problem['severity']}: ", COLOURS[problem["severity"]]),
            f"{problem['text']} -> {problem['advice']}",
        )
        for problem in problems
    ]
