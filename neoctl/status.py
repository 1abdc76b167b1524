"""``neoctl status``: the cluster on one screen, its problems, and what to do about them."""

from __future__ import annotations

import time
from collections import Counter

from msgspec.structs import asdict

from neo.admin.monitor import SERVING, tid_date
from neo.protocol.enums import ClusterState, ErrorCode, NodeType
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import ZERO_TID, format_nid, time_from_tid
from neo.protocol.packets import (
    A,
    AskCheckReport,
    AskClusterState,
    AskContents,
    AskDownNodes,
    AskElection,
    AskLastIDs,
    AskLastTransaction,
    AskNodeConditions,
    AskNodeList,
    AskObstacle,
    AskOperations,
    AskPartitionList,
    AskPrepared,
    AskPrimary,
    AskScrub,
    AskSync,
    AskTransactions,
    AskUpstream,
    PreparedRow,
    Request,
)
from neoctl import render
from neoctl.client import AdminAway, AdminClient
from neoctl.disks import ask_disks, disk_data
from neoctl.problems import (
    Problem,
    can_lose,
    find_blocking,
    find_check_problems,
    find_content_problems,
    find_master_problems,
    find_node_problems,
    find_operation_problems,
    find_problems,
    find_sync_problems,
    find_undecided,
    find_upstream_problems,
    stuck,
)
from neoctl.render import Data
from neoctl.screen import to_text
from neoctl.verbs import Reply

#: Exit code: something does not work now.
EXIT_PROBLEM = 3
#: Exit code: this backup does not hear its upstream cluster.
EXIT_UNHEARD = 1


def status_reply(admin: AdminClient) -> Reply:
    """Ask everything, and return the screen and its data.

    Data: ``state primary``; ``election`` (see ``render.election_data``, null if there is one master);
    ``upstream`` (of a backup: ``cluster heard ever seconds reason``, else null); ``last_oid last_tid
    last_tid_date``; ``nodes`` (see ``render.node_data``; storage nodes also have ``cells``, state ->
    count, and ``says`` if down); ``ptid replicas partitions``; ``can_lose`` (storage nodes that may be
    lost without losing service, null if the cluster does not serve); ``scrub`` (see AnswerScrub; null if
    copies are not compared in the background); ``sync`` (see ``render.sync_data``; null if the master
    does not know it); ``blobs`` (see ``render.content_data``); ``operations`` in progress (see
    ``render.operation_data``); ``conditions`` (see ``render.condition_data``); ``disks``
    (see ``disks.disk_data``); ``problems`` (``severity
    text advice`` of each).
    """
    state = admin.ask(AskClusterState()).state
    primary = format_nid(admin.ask(AskPrimary()).primary_nid)
    last_oid, last_tid = admin.ask(AskLastIDs()).loid, admin.ask(AskLastTransaction()).tid
    nodes = render.node_data(admin.ask(AskNodeList(None)).node_list)
    answer = admin.ask(AskPartitionList(0, 0, None))
    table = render.table_data(answer.ptid, answer.num_replicas, answer.row_list)
    _count_cells(nodes, table)
    _add_words(admin, nodes)
    election, upstream = _election(admin), _upstream(admin, state)
    report, transactions = _asked(admin, AskCheckReport()), _asked(admin, AskTransactions())
    obstacle = _obstacle(admin, state)
    # The last questions: an admin node of an earlier version does not know them, and closes.
    prepared = _prepared(admin)
    scrub, sync = _scrub(admin), _sync(admin, last_tid)
    blobs, operations, conditions = _blobs(admin), _operations(admin), _conditions(admin)
    disks = disk_data(ask_disks(admin))
    now = time.time()
    problems = [
        *([] if report is None else find_check_problems(report.row_list)),
        *find_upstream_problems(upstream, nodes, now),
        *find_sync_problems(state, sync, upstream, now),
        *([] if transactions is None else find_blocking(transactions.row_list, prepared)),
        *find_undecided(prepared, now),
        *find_content_problems(state, blobs, nodes),
        *find_node_problems(conditions),
        *find_operation_problems(operations, nodes),
        *find_problems(state, nodes, table, obstacle, election, stuck(conditions)),
        *find_master_problems(election),
    ]
    data = {
        "state": None if state is None else state.name,
        "primary": primary,
        "election": election,
        "upstream": upstream,
        **_last_ids(last_oid, last_tid),
        "nodes": nodes,
        **table,
        "can_lose": can_lose(nodes, table) if state in SERVING else None,
        "scrub": scrub,
        "sync": sync,
        "blobs": blobs,
        "operations": operations,
        "conditions": conditions,
        "disks": disks,
        "problems": [problem._asdict() for problem in problems],
    }
    last = None if last_tid == ZERO_TID else time_from_tid(last_tid)
    return Reply(to_text(data, now, last), data, _exit_code(problems, upstream))


def _last_ids(oid: bytes | None, tid: bytes) -> Data:
    return {
        "last_oid": render.hex_id(oid),
        "last_tid": render.hex_id(tid),
        "last_tid_date": tid_date(tid),
    }


def _exit_code(problems: list[Problem], upstream: Data | None) -> int:
    if upstream is not None and not upstream["heard"]:
        return EXIT_UNHEARD
    return EXIT_PROBLEM if any(problem.severity == "problem" for problem in problems) else 0


def _count_cells(nodes: list[Data], table: Data) -> None:
    """Add ``cells`` to storage nodes: state -> number of cells."""
    for node in nodes:
        if node["type"] == NodeType.STORAGE.name:
            cells = (row["cells"].get(node["nid"]) for row in table["partitions"])
            node["cells"] = dict(Counter(state for state in cells if state is not None))


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


def _election(admin: AdminClient) -> Data | None:
    """Return the state of the election, None if there is one master."""
    answer = _asked(admin, AskElection())
    return None if answer is None else render.election_data(answer)


def _asked_late(admin: AdminClient, question: Request[A]) -> A | None:
    """Return the answer, or None as :func:`_asked`, or if the admin node does not know the question and
    has closed the connection."""
    try:
        return _asked(admin, question)
    except AdminAway:
        return None
    except ErrorAnswer as e:
        if e.code is ErrorCode.PROTOCOL_ERROR:
            return None
        raise


def _scrub(admin: AdminClient) -> Data | None:
    answer = _asked_late(admin, AskScrub())
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


def _prepared(admin: AdminClient) -> list[PreparedRow]:
    answer = _asked_late(admin, AskPrepared(0, None))
    return [] if answer is None else answer.row_list


def _blobs(admin: AdminClient) -> list[Data]:
    answer = _asked_late(admin, AskContents())
    return [] if answer is None else render.content_data(answer.row_list)


def _conditions(admin: AdminClient) -> list[Data]:
    answer = _asked_late(admin, AskNodeConditions())
    return [] if answer is None else render.condition_data(answer.row_list)


def _sync(admin: AdminClient, last_tid: bytes) -> Data | None:
    now = time.time()
    answer = _asked_late(admin, AskSync())
    return None if answer is None else render.sync_data(answer, last_tid, now)


def _operations(admin: AdminClient) -> list[Data]:
    """Return the operations in progress."""
    answer = _asked_late(admin, AskOperations(None))
    rows = [] if answer is None else map(render.operation_data, answer.row_list)
    return [row for row in rows if row["state"] not in render.OPERATION_ENDED]
