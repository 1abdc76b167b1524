"""``neoctl status``: the whole cluster on one screen, and what should be done about it.

:func:`find_problems` is pure: from states and tables to sentences.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import Any, NamedTuple

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from neo.admin.monitor import SERVING, tid_date
from neo.protocol.enums import CellState, ClusterState, ErrorCode, NodeState, NodeType
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import ZERO_TID, format_nid, time_from_tid
from neo.protocol.packets import (
    AskCheckReport,
    AskClusterState,
    AskElection,
    AskLastIDs,
    AskLastTransaction,
    AskNodeList,
    AskPartitionList,
    AskPrimary,
)
from neoctl import render
from neoctl.client import AdminClient
from neoctl.verbs import Reply

#: More partitions than this are shown as counts: their letters would fill the screen.
LETTERS_MOST = 64
#: Columns when the output is not a terminal: nothing is to be broken into lines then.
FILE_WIDTH = 200
#: ``status`` found a problem: something does not work now.
EXIT_PROBLEM = 3

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
    """``severity``: ``problem`` when something does not work now, ``warning`` when it may not soon."""

    severity: str
    text: str
    advice: str


def status_reply(admin: AdminClient) -> Reply:
    """Data: ``state primary election`` (see ``render.election_data``, null if there is one master)
    ``last_oid last_tid last_tid_date nodes`` (see ``render.node_data``, with
    ``cells``: state -> count, for storages) ``ptid replicas partitions can_lose`` (storage nodes that
    may be lost now without losing service, null when it does not serve) and ``problems`` (each with
    ``severity text advice``)."""
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
    election = _election(admin)
    problems = [
        *_check_problems(admin),
        *find_problems(state, nodes, table),
        *find_master_problems(election),
    ]
    data = {
        "state": None if state is None else state.name,
        "primary": primary,
        "election": election,
        "last_oid": render.hex_id(last_oid),
        "last_tid": render.hex_id(last_tid),
        "last_tid_date": tid_date(last_tid),
        "nodes": nodes,
        **table,
        "can_lose": can_lose(nodes, table) if state in SERVING else None,
        "problems": [problem._asdict() for problem in problems],
    }
    worst = any(problem.severity == "problem" for problem in problems)
    age = time.time() - time_from_tid(last_tid) if last_tid != ZERO_TID else None
    return Reply(to_text(data, age), data, EXIT_PROBLEM if worst else 0)


# -- judgement -----------------------------------------------------------------------------------


def _readable(nodes: list[Data], row: Data) -> int:
    """How many running nodes can answer for a partition."""
    running = {node["nid"] for node in nodes if node["state"] == NodeState.RUNNING.name}
    return sum(nid in running and CellState[state].readable for nid, state in row["cells"].items())


def can_lose(nodes: list[Data], table: Data) -> int:
    """How many storage nodes, whichever they are, may be lost now without losing service."""
    counts = [_readable(nodes, row) for row in table["partitions"]]
    return max(min(counts, default=0) - 1, 0)


def find_problems(state: ClusterState | None, nodes: list[Data], table: Data) -> list[Problem]:
    """All there is to say, the worst first."""
    problems = [
        *_state_problems(state, nodes, table),
        *_node_problems(state, nodes),
        *_cell_problems(state, nodes, table),
    ]
    return sorted(problems, key=lambda problem: problem.severity)


def _check_problems(admin: AdminClient) -> list[Problem]:
    """What the last check left to the operator."""
    try:
        rows = admin.ask(AskCheckReport()).row_list
    except ErrorAnswer as e:
        if e.code is ErrorCode.DENIED:
            return []  # a master without reports
        raise
    return [
        Problem("problem", f"the copies of partition {partition} differ", text)
        for partition, _, finding, text in rows
        if finding == "undecided"
    ]


def _election(admin: AdminClient) -> Data | None:
    try:
        return render.election_data(admin.ask(AskElection()))
    except ErrorAnswer as e:
        if e.code is ErrorCode.DENIED:
            return None  # one master
        raise


def find_master_problems(election: Data | None) -> list[Problem]:
    """What the table of nodes does not show."""
    if election is None:
        return []
    members = [row for row in election["masters"] if row["role"] != "pending"]
    problems = [
        Problem("warning", f"{row['nid']} {row['note']}", "nothing, unless it stays so")
        for row in members
        if row["note"] and row["note"] != "is not heard"
    ]
    voting = sum(not row["note"] or "behind" in row["note"] for row in members)
    if voting - 1 <= len(members) // 2 and voting < len(members):
        text = f"{voting} of {len(members)} masters run and vote: no other may fail"
        problems.append(Problem("warning", text, "start the others, or neoctl drop what is lost"))
    return problems


def _state_problems(state: ClusterState | None, nodes: list[Data], table: Data) -> list[Problem]:
    if state in SERVING:
        return []
    if state is ClusterState.RECOVERING:
        storages = [node["nid"] for node in nodes if node["type"] == NodeType.STORAGE.name]
        if table["ptid"] is None and storages:
            return [
                Problem(
                    "problem",
                    f"no database was created yet; {_join(storages)} wait for it",
                    "when all storage nodes are there: neoctl start",
                )
            ]
        rows = table["partitions"]
        # With a copy of everything here, it waits because others may have committed more since.
        lacking = [row for row in rows if not _present(nodes, row)] or rows
        down = {node["nid"] for node in nodes if node["state"] == NodeState.DOWN.name}
        missing = sorted({nid for row in lacking for nid in row["cells"]} & down)
        what = f"storage nodes: {_join(missing)}" if missing else "storage nodes"
        return [Problem("problem", f"the cluster waits for {what}", "start them; see their logs")]
    if state is None:
        return [Problem("problem", "the master has not told the state yet", "ask again")]
    if state is ClusterState.STARTING_BACKUP:
        text = "this backup waits for its upstream cluster, and serves no application"
        return [Problem("problem", text, "the log of the master says why; start the upstream cluster")]
    return [
        Problem("problem", f"the cluster is {state.name} and serves no application", "ask again")
    ]


def _present(nodes: list[Data], row: Data) -> bool:
    there = {node["nid"] for node in nodes if node["state"] != NodeState.DOWN.name}
    return any(nid in there and CellState[state].readable for nid, state in row["cells"].items())


def _node_problems(state: ClusterState | None, nodes: list[Data]) -> list[Problem]:
    problems = []
    for node in nodes:
        name = f"{node['nid']} ({node['address'] or 'address unknown'})"
        if node["state"] == NodeState.DOWN.name:
            role = "storage" if node["type"] == NodeType.STORAGE.name else "master"
            advice = f"start neo{role} there"
            if role == "storage":
                advice += (
                    f"; if it is lost for ever: neoctl tweak {node['nid']}, "
                    f"then neoctl drop {node['nid']}"
                )
            elif node["nid"] != "?":
                advice += f"; if it is lost for ever: neoctl drop {node['nid']}"
            problems.append(Problem("problem", f"{name} is down", advice))
        elif node["state"] == NodeState.PENDING.name and state in SERVING:
            problems.append(
                Problem(
                    "warning",
                    f"{name} is connected but not used",
                    f"neoctl add {node['nid']}"
                    + (", then neoctl tweak" if node["type"] == NodeType.STORAGE.name else ""),
                )
            )
    return problems


def _cell_problems(state: ClusterState | None, nodes: list[Data], table: Data) -> list[Problem]:
    problems = []
    by_state: dict[str, Counter[str]] = {}
    for row in table["partitions"]:
        for nid, cell in row["cells"].items():
            by_state.setdefault(cell, Counter())[nid] += 1
    corrupted = by_state.get(CellState.CORRUPTED.name, Counter[str]())
    for nid, count in sorted(corrupted.items()):
        problems.append(
            Problem(
                "warning",
                f"{count} partitions of {nid} differ from their replicas and are not used",
                "neoctl repair copies them anew; suspect its disk",
            )
        )
    outdated = by_state.get(CellState.OUT_OF_DATE.name, Counter[str]())
    running = {node["nid"] for node in nodes if node["state"] == NodeState.RUNNING.name}
    for nid, count in sorted(outdated.items()):
        if nid in running:
            problems.append(
                Problem(
                    "warning", f"{nid} is copying {count} partitions", "nothing, it takes a while"
                )
            )
    if state in SERVING and can_lose(nodes, table) < table["replicas"]:
        problems.append(
            Problem(
                "warning",
                f"fewer copies than wanted: {can_lose(nodes, table) + 1} of "
                f"{table['replicas'] + 1} for some partitions",
                "bring back or add storage nodes, then neoctl tweak",
            )
        )
    return problems


# -- text ----------------------------------------------------------------------------------------


def _join(names: list[str]) -> str:
    return ", ".join(names)


def duration(seconds: float) -> str:
    """``3 hours`` for people: the largest unit, rounded down."""
    for size, name in SINCE:
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {name}{'s' if count > 1 else ''}"
    return "less than a second"


def to_text(data: Data, age: float | None) -> str:
    """The screen; colours only when stdout is a terminal. ``age``: seconds of the last tid."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else FILE_WIDTH)
    with console.capture() as capture:
        for part in _screen(data, age):
            # A terminal breaks long sentences itself, and joins them again when it is widened.
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
