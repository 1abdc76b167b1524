"""Problems of a cluster, and what to do about them. Pure functions from states and tables to sentences.

Each advice can be followed in the state for which it is given; tests follow it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

from neo.admin.facts import Data, duration, prepared_data, second, transaction_data
from neo.admin.monitor import SERVING, tid_date
from neo.protocol.enums import CellState, ClusterState, NodeState, NodeType
from neo.protocol.ids import tid_from_time
from neo.protocol.packets import PreparedRow, TransactionRow
from neo.protocol.words import counted

#: A transaction that blocks others for longer is a problem. Commits take a fraction of a second. Longer
#: ones belong to stopped clients or to bulk imports.
BLOCKING_SECONDS = 5.0
#: Bound of the listed transactions; the others are only counted.
NAMED_MOST = 5
#: A coordinator decides within seconds. A prepared transaction that is older was left by a crash.
PREPARED_SECONDS = 600.0
#: A backup that is not in sync is reported after this time. A new master, and one that answers again,
#: take less.
SYNC_SECONDS = 5.0


class Problem(NamedTuple):
    """``severity``: ``problem`` if something does not work now, ``warning`` if it may not work soon.
    ``subject``: what does not work, the same while times and numbers in ``text`` change."""

    severity: str
    text: str
    advice: str
    subject: str = ""


def find_problems(
    state: ClusterState | None,
    nodes: list[Data],
    table: Data,
    obstacle: Data | None = None,
    election: Data | None = None,
    stuck: Collection[str] = (),
) -> list[Problem]:
    """Return all problems, the worst first. Each advice can be followed in the state for which it is
    given; tests follow it. ``stuck``: nodes that say themselves why they do not copy."""
    problems = [
        *_state_problems(state, nodes, table, obstacle),
        *_node_problems(state, nodes, table, election),
        *_cell_problems(state, nodes, table, stuck),
    ]
    return sorted(problems, key=lambda problem: problem.severity)


def find_check_problems(rows: list[tuple[int, int | None, str, str]]) -> list[Problem]:
    """Return what the last check, or the comparison at the start, leaves to the operator."""
    problems = [
        Problem("problem", f"the copies of partition {partition} differ", text)
        for partition, _, finding, text in rows
        if finding == "undecided"
    ]
    behind = sum(finding == "behind" for _, _, finding, _ in rows)
    if behind:
        had = counted(behind, "partition")
        text = f"{had} had copies that lacked transactions when the cluster started"
        problems.append(
            Problem(
                "warning",
                text,
                "neoctl print check; suspect the disks of the nodes that it names; wait until all is"
                " copied; neoctl check",
            )
        )
    return problems


def find_operation_problems(operations: list[Data], nodes: list[Data]) -> list[Problem]:
    """Return operations that wait for nodes that are down, or cannot be undone there. ``operations``: in
    progress."""
    down = set(_down(nodes))
    problems: list[Problem] = []
    for row in operations:
        title, over = f"operation {row['id']} ({row['kind']})", ("done", "rolled back", "forgotten")
        waiting = {part["node"] for part in row["progress"] if part["mark"] not in over}
        for nid in sorted(waiting & down):
            text = f"{title} waits for {nid}, which is down"
            if row["state"] == "RUNNING":
                problems.append(
                    Problem(
                        "warning",
                        text,
                        f"start neostorage there; if it is lost for ever: neoctl abort {row['id']}",
                    )
                )
            elif row["state"] == "ROLLING_BACK":
                problems.append(
                    Problem(
                        "warning",
                        f"{text}, to undo its part",
                        f"start neostorage there; if it is lost for ever: neoctl drop {nid}",
                    )
                )
        for part in row["progress"] if row["state"] == "ROLLING_BACK" else ():
            nid, why = part["node"], part["text"]
            if part["mark"] == "failed" and nid not in down:
                problems.append(
                    Problem(
                        "warning",
                        f"{title} is being undone, and {nid} says: {why}",
                        "mend what it says; if you have put the node in order by hand: "
                        f"neoctl forget_operation {row['id']} {nid}",
                    )
                )
    return problems


def find_upstream_problems(
    upstream: Data | None, nodes: list[Data], now: float
) -> list[Problem]:
    """Return the problem of a backup that gets nothing, although its tables look complete."""
    if upstream is None or upstream["heard"]:
        return []
    reason, seconds = upstream["reason"], upstream["seconds"]
    if not upstream["cluster"]:
        return [
            Problem(
                "problem",
                f"this cluster is a standby, but follows no other: {reason}",
                "set it and start the masters again; if it is to be a standby no more: "
                "neoctl set cluster stopping_backup",
            )
        ]
    moment = tid_date(tid_from_time(now - seconds)).partition(".")[0]
    name, since = repr(upstream["cluster"]), f"{moment} UTC, {duration(seconds)} ago"
    text = f"this standby gets nothing from its upstream cluster {name} since {since}: {reason}"
    if not upstream["ever"]:
        text = (
            f"this standby never reached its upstream cluster {name}, and tries since {since}: {reason}"
        )
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


def find_sync_problems(
    state: ClusterState | None, sync: Data | None, upstream: Data | None, now: float
) -> list[Problem]:
    """Return the synchronous standbys that are not in sync for some seconds, and whether this cluster is
    one of these. ``sync``: None if the master does not know them."""
    if sync is None or state not in SERVING:
        return []
    problems = [_sync_problem(row) for row in sync["backups"] if _lacks_sync(row, now)]
    own = sync["own"]
    unheard = upstream is not None and not upstream["heard"]  # is a problem of its own
    if own is not None and not unheard and _lacks_sync(own, now):
        since = f"{second(own['since'])} UTC"
        text = f"this standby is not in sync with {own['name']!r} since {since}: {own['reason']}"
        if own["state"] == "sync":
            text = f"this standby comes into sync with {own['name']!r} again and again: {own['reason']}"
        problems.append(
            Problem(
                "warning",
                text,
                "mend what the reason names; if this standby is only behind: wait until it has caught up",
            )
        )
    return problems


def _lacks_sync(row: Data, now: float) -> bool:
    """Return whether to report a synchronous standby (specification 25.48). Its ``since`` was read
    from another clock: a time in the future hides nothing. One that flaps has a reason in sync."""
    state, since, reason = row["state"], row["since"], row["reason"]
    if state == "off" or (state == "sync" and reason):
        return True
    return state in ("async", "lost") and not 0.0 <= now - since < SYNC_SECONDS


def _sync_problem(row: Data) -> Problem:
    name, since, reason = row["name"], f"{second(row['since'])} UTC", row["reason"]
    if row["state"] == "off":
        return Problem(
            "warning",
            f"synchronous standby {name} is switched off since {since}: commits do not wait for it",
            f"neoctl set sync {name} on",
        )
    if row["state"] == "lost":
        return Problem(
            "problem",
            f"commits wait for synchronous standby {name}, which is not in sync since {since}: {reason}",
            "start that standby, or mend the network between the two; its neoctl status says what else is"
            f" wrong; if applications cannot wait: neoctl set sync {name} off",
        )
    text = (
        f"synchronous standby {name} is not in sync since {since}, and what is acknowledged is not in it:"
        f" {reason}"
    )
    if row["state"] == "sync":
        text = (
            f"synchronous standby {name} comes and goes, and is in sync just now; commits do not wait for"
            f" it while it is away, and what is acknowledged then is missing if it takes over: {reason}"
        )
    return Problem(
        "warning",
        text,
        "start that standby, or mend the network between the two; its neoctl status says what else is"
        " wrong; then wait until it is in sync",
    )


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


def can_lose(nodes: list[Data], table: Data) -> int:
    """Return the number of storage nodes, whichever they are, that may be lost without losing service."""
    counts = [_readable(nodes, row) for row in table["partitions"]]
    return max(min(counts, default=0) - 1, 0)


def _readable(nodes: list[Data], row: Data) -> int:
    """Return the number of running nodes that can read a partition."""
    running = {node["nid"] for node in nodes if node["state"] == NodeState.RUNNING.name}
    return sum(nid in running and CellState[state].readable for nid, state in row["cells"].items())


def _down(nodes: list[Data]) -> list[str]:
    """Return the storage nodes that are DOWN."""
    return [node["nid"] for node in nodes if node["type"] == "STORAGE" and node["state"] == "DOWN"]


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
        text = "this standby waits for its upstream cluster, and serves no application"
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
    state: ClusterState | None, nodes: list[Data], table: Data, election: Data | None
) -> list[Problem]:
    problems = []
    for node in nodes:
        if node["state"] == NodeState.DOWN.name:
            storage = node["type"] == NodeType.STORAGE.name
            problem = _storage_down(node, state, nodes, table) if storage else _master_down(node)
            problems.append(problem._replace(subject=f"{_named(node)} is down"))
        elif node["state"] == NodeState.PENDING.name and state in SERVING:
            problems.append(_pending(node, nodes, table, election))
    return problems


def _named(node: Data) -> str:
    return f"{node['nid']} ({node['address'] or 'address unknown'})"


def _storage_down(
    node: Data, state: ClusterState | None, nodes: list[Data], table: Data
) -> Problem:
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
    if (pair := _replacement(nodes, table)) is not None:
        return Problem(
            "problem",
            text,
            f"start neostorage there; if it is lost for ever: neoctl replace {nid} {pair[1]}",
        )
    return Problem(
        "problem",
        text,
        f"start neostorage there; if it is lost for ever: neoctl drop {nid}, then neoctl tweak",
    )


def _replacement(nodes: list[Data], table: Data) -> tuple[str, str] | None:
    """Return the only storage node that is down, if it has cells and may be lost, and the first node that
    waits to be used, which can take its place; None if there is no such pair."""
    down, new = _down(nodes), _waiting(nodes)
    if len(down) != 1 or not new or not any(down[0] in row["cells"] for row in table["partitions"]):
        return None
    runs = any(node["nid"] == down[0] and node.get("says") is not None for node in nodes)
    return None if runs else (down[0], new[0])


def _waiting(nodes: list[Data]) -> list[str]:
    """Return the storage nodes that are connected and not used."""
    return [node["nid"] for node in nodes if node["type"] == "STORAGE" and node["state"] == "PENDING"]


def _master_down(node: Data) -> Problem:
    nid, text = node["nid"], f"{_named(node)} is down"
    if nid == "?":
        return Problem("problem", text, "start neomaster there")
    return Problem(
        "problem", text, f"start neomaster there; if it is lost for ever: neoctl drop {nid}"
    )


def _pending(node: Data, nodes: list[Data], table: Data, election: Data | None) -> Problem:
    nid, text = node["nid"], f"{_named(node)} is connected but not used"
    if node["type"] != NodeType.STORAGE.name:
        if _may_grow(election):
            return Problem("warning", text, f"neoctl add {nid}")
        return Problem("warning", text, f"start the other masters; then: neoctl add {nid}")
    pair = _replacement(nodes, table)
    if pair is not None and pair[1] == nid:  # what is advised for the lost node, seen from this one
        return Problem(
            "warning",
            text,
            f"start {pair[0]}, wait until all is copied, then neoctl add {nid}; if {pair[0]} is lost for"
            f" ever: neoctl replace {pair[0]} {nid}",
        )
    if _down(nodes):  # nothing can be moved before it is back, or dropped
        return Problem("warning", text, f"bring back, or drop, what is down; then: neoctl add {nid}")
    states = {state for row in table["partitions"] for state in row["cells"].values()}
    if states != {CellState.UP_TO_DATE.name}:
        return Problem("warning", text, f"wait until all is copied; then: neoctl add {nid}")
    return Problem("warning", text, f"neoctl add {nid}")


def _cell_problems(
    state: ClusterState | None, nodes: list[Data], table: Data, stuck: Collection[str]
) -> list[Problem]:
    problems = []
    by_state: dict[str, Counter[str]] = {}
    for row in table["partitions"]:
        for nid, cell in row["cells"].items():
            by_state.setdefault(cell, Counter())[nid] += 1
    running = {node["nid"] for node in nodes if node["state"] == NodeState.RUNNING.name}
    corrupted = by_state.get(CellState.CORRUPTED.name, Counter[str]())
    for nid, count in sorted(corrupted.items()) if state in SERVING else ():
        text = counted(
            count,
            f"partition of {nid} differs from its replicas and is not used",
            f"partitions of {nid} differ from their replicas and are not used",
        )
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
        if nid in running and nid not in stuck:  # else it says itself what is wrong
            text = f"{nid} is copying {counted(count, 'partition')}"
            problems.append(Problem("warning", text, "nothing, it takes a while"))
    if state in SERVING and can_lose(nodes, table) < table["replicas"]:
        problems.append(_copies_problem(nodes, table, stuck))
    rows = [row["cells"] for row in table["partitions"]]
    having = {nid for cells in rows for nid in cells}
    alone = table["replicas"] == 0 and all(len(cells) < 2 for cells in rows)
    if state is ClusterState.RUNNING and alone and len(having) > 1:
        text = f"there are {len(having)} storage nodes and no copies: a lost disk is lost data"
        problems.append(
            Problem("warning", text, "neoctl set replicas 1; neoctl tweak", "no copies")
        )
    return problems


def _copies_problem(nodes: list[Data], table: Data, stuck: Collection[str]) -> Problem:
    copies, wanted = can_lose(nodes, table) + 1, table["replicas"] + 1
    text = f"fewer copies than wanted: {copies} of {wanted} for some partitions"
    if (pair := _replacement(nodes, table)) is not None:
        lost, new = pair
        return Problem("warning", text, f"start {lost}, or replace it: neoctl replace {lost} {new}")
    if _down(nodes):
        return Problem("warning", text, "bring back, or drop, what is down; then: neoctl tweak")
    running = {
        node["nid"]
        for node in nodes
        if node["type"] == NodeType.STORAGE.name and node["state"] == NodeState.RUNNING.name
    }
    if len(running) < wanted:
        return Problem("warning", text, "add storage nodes: neoctl add all")
    able, copied = running.difference(stuck), {CellState.UP_TO_DATE.name, CellState.OUT_OF_DATE.name}
    if all(
        sum(nid in able and cell in copied for nid, cell in row["cells"].items()) >= wanted
        for row in table["partitions"]
    ):
        return Problem("warning", text, "nothing, it takes a while")
    return Problem("warning", text, "neoctl tweak; then wait until all is copied")


def _join(names: list[str]) -> str:
    return ", ".join(names)


def find_blocking(
    transactions: list[TransactionRow], prepared: list[PreparedRow]
) -> list[Problem]:
    """Return a problem for each transaction that blocks others for too long.

    A transaction that waits itself is omitted, because the one that it waits for is listed.
    """
    rows = transaction_data(transactions)
    found = [row for row in rows if row["waiting"] and row["seconds"] >= BLOCKING_SECONDS]
    first = [row for row in found if row["phase"] != "waiting"] or found
    first.sort(key=lambda row: -row["seconds"])
    xids = {row["ttid"]: row["xid"] for row in prepared_data(prepared)}
    problems = [_blocking(row, xids.get(row["ttid"])) for row in first[:NAMED_MOST]]
    if len(first) > NAMED_MOST:
        text = f"{len(first) - NAMED_MOST} more transactions make others wait"
        problems.append(Problem("problem", text, "neoctl print transactions"))
    return problems


def _blocking(row: Data, xid: str | None) -> Problem:
    """``xid``: None unless the transaction is prepared."""
    where = row["address"] or "not connected"
    others = "1 other waits" if row["waiting"] == 1 else f"{row['waiting']} others wait"
    text = (
        f"{others} for transaction {row['ttid']} of {row['client']} ({where}) since"
        f" {row['seconds']:.0f} s; it began {row['age']:.0f} s ago and is {row['phase']}"
    )
    if xid is not None:
        text = f"{others} for what prepared transaction {xid} holds, since {row['seconds']:.0f} s"
        return _undecided("problem", text, xid)
    if row["phase"] == "finishing":
        return Problem(
            "problem",
            text,
            "it will be committed: look for a storage node that is stopped or slow",
        )
    return Problem(
        "problem", text, f"let that client go on, or abort its transaction: neoctl end {row['ttid']}"
    )


def find_undecided(rows: list[PreparedRow], now: float) -> list[Problem]:
    """Return a warning for prepared transactions that wait too long for a decision."""
    old = [row for row in prepared_data(rows) if row["state"] == "prepared"]
    old = sorted((r for r in old if now - r["since"] >= PREPARED_SECONDS), key=lambda r: r["since"])
    if not old:
        return []
    first, count = old[0], len(old)
    names = f"transaction {first['xid']} is" if count == 1 else f"{count} transactions are"
    text = f"{names} prepared and not decided, for {duration(now - first['since'])}"
    if count > 1:
        text += f" ({first['xid']})"
    objects = sum(row["objects"] for row in old)
    text += f": nothing else can write their {counted(objects, 'object')}"
    return [_undecided("warning", text, first["xid"])]


def find_content_problems(
    state: ClusterState | None, blobs: list[Data], nodes: list[Data]
) -> list[Problem]:
    """Return a problem for each storage node that lost contents of blobs, or that keeps none although
    others do."""
    found = [
        Problem(
            "problem",
            f"{row['nid']} lost {row['lost']:,} contents of blobs: their files are missing or damaged",
            "nothing, they are copied from other nodes that have them; suspect its disk; if they stay"
            " lost: restore their files, which its log names; then: neoctl check",
        )
        for row in blobs
        if row["lost"]
    ]
    having = {row["nid"] for row in blobs}
    if state in (ClusterState.RUNNING, ClusterState.BACKINGUP) and any(r["contents"] for r in blobs):
        for node in nodes:
            serves = node["type"] == "STORAGE" and node["state"] == "RUNNING" and node.get("cells")
            if serves and node["nid"] not in having:
                found.append(
                    Problem(
                        "problem",
                        f"{node['nid']} keeps no contents of blobs: clients cannot store blobs in its"
                        " partitions",
                        "set its blob_dir and start it again",
                    )
                )
    return found


def find_node_problems(conditions: list[Data]) -> list[Problem]:
    """Return what storage nodes say is wrong with them, and which of them say nothing."""
    return [
        Problem(
            row["severity"],
            f"{row['nid']}{'' if row['kind'] == 'silent' else ' says:'} {row['text']}",
            row["advice"],
            f"{row['nid']} {row['kind']}",
        )
        for row in conditions
    ]


def stuck(conditions: list[Data]) -> set[str]:
    """Return the storage nodes that say why they do not copy."""
    return {row["nid"] for row in conditions if row["kind"] == "copy"}


def _undecided(severity: str, text: str, xid: str) -> Problem:
    return Problem(
        severity,
        text,
        "run neoresolve with all databases that take part; if the coordinator is lost for ever, and no"
        f" other database has committed it: neoctl rollback {xid}",
    )
