"""The verbs: the questions that each one asks, and its reply. For the forms of text and data see
``render``."""

from __future__ import annotations

import json
import time

from neo.admin import facts
from neo.admin.monitor import tid_date
from neo.protocol.enums import CellState, ClusterState, NodeState, NodeType
from neo.protocol.ids import ZERO_TID, format_nid
from neo.protocol.packets import (
    AddPendingNodes,
    AskCheckReport,
    AskClusterState,
    AskContents,
    AskElection,
    AskFinishPrepared,
    AskLastIDs,
    AskLastTransaction,
    AskLostContents,
    AskMonitorInformation,
    AskNodeList,
    AskPartitionList,
    AskPrepared,
    AskPrimary,
    AskRecovery,
    AskSync,
    AskTransactions,
    CheckReplicas,
    EndTransaction,
    Error,
    FlushLog,
    ForgetPrepared,
    ForgetTable,
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
from neo.protocol.words import counted
from neoctl import render
from neoctl.client import AdminClient
from neoctl.disks import NOTHING_MOVES, fit, refuse_full
from neoctl.status import status_reply
from neoctl.verbs import (
    Arguments,
    CommandError,
    Reply,
    cell,
    cluster_state,
    natural,
    nid,
    nids,
    node_type,
    switch,
    tid,
    verb,
    xid,
)

#: A number below this, without a colon, was probably meant as a partition: as a TID it is in 1900.
PARTITIONS_MAX = 2**32
#: Lost contents of each node that are listed: as many as a node remembers in one answer.
LOST_MOST = 1000


def confirmed(answer: Error) -> Reply:
    """Return the master's confirmation of a command."""
    return Reply(answer.message, {"message": answer.message})


def _storages(admin: AdminClient, state: NodeState) -> list[int]:
    rows = admin.ask(AskNodeList(NodeType.STORAGE)).node_list
    return sorted(row[2] for row in rows if row[3] is state and row[2] is not None)


# -- questions -----------------------------------------------------------------------------------


@verb("status", "everything about the cluster on one screen, with problems and what to do")
def status(admin: AdminClient, arguments: Arguments) -> Reply:
    return status_reply(admin)


@verb("print cluster", "state of the cluster")
def print_cluster(admin: AdminClient, arguments: Arguments) -> Reply:
    """Data: ``state``, null while the admin node does not know it."""
    state = admin.ask(AskClusterState()).state
    name = None if state is None else state.name
    return Reply(str(name), {"state": name})


@verb("print primary", "node id of the primary master")
def print_primary(admin: AdminClient, arguments: Arguments) -> Reply:
    """Data: ``primary``."""
    primary = format_nid(admin.ask(AskPrimary()).primary_nid)
    return Reply(primary, {"primary": primary})


@verb("print masters", "of several masters: epoch, lease, and the log of each")
def print_masters(admin: AdminClient, arguments: Arguments) -> Reply:
    """Data: ``epoch lease tid ptid`` and ``masters`` (``nid address role tid note``)."""
    data = facts.election_data(admin.ask(AskElection()))
    return Reply(render.election_text(data), data)


@verb("print node [TYPE]", "nodes: id, type, address, state, time of identification", 0, 1)
def print_node(admin: AdminClient, arguments: Arguments) -> Reply:
    """Data: ``nodes``."""
    wanted = node_type(arguments.words[0]) if arguments.words else None
    nodes = facts.node_data(admin.ask(AskNodeList(wanted)).node_list)
    return Reply(render.node_text(nodes), {"nodes": nodes})


@verb("print pt [MIN [MAX [NODE]]]", "partition table, by node, or by partition from MIN", 0, 3)
def print_pt(admin: AdminClient, arguments: Arguments) -> Reply:
    """Data: ``ptid replicas partitions``; by node also ``nodes``."""
    words = arguments.words
    first, last = (natural(word) for word in (*words[:2], "0", "0")[:2]) if words else (0, 0)
    node = nid(words[2]) if len(words) > 2 else None
    answer = admin.ask(AskPartitionList(first, last, node))
    table = facts.table_data(answer.ptid, answer.num_replicas, answer.row_list, first)
    if not words:
        nodes = facts.node_data(admin.ask(AskNodeList(NodeType.STORAGE)).node_list)
        return Reply(render.table_by_node(table, nodes), {**table, "nodes": nodes})
    if node is not None:
        if node not in (row[2] for row in admin.ask(AskNodeList(NodeType.STORAGE)).node_list):
            raise CommandError(f"{format_nid(node)} is no storage node of this cluster")
        table["partitions"] = [
            row for row in table["partitions"] if format_nid(node) in row["cells"]
        ]
    return Reply(render.table_by_partition(table), table)


@verb("print ids", "last oid, tid and partition table id")
def print_ids(admin: AdminClient, arguments: Arguments) -> Reply:
    """Data: ``last_oid last_tid last_tid_date last_ptid backup_tid truncate_tid``."""
    recovery = admin.ask(AskRecovery())
    last = admin.ask(AskLastIDs())
    tids = {
        "last_tid": last.ltid,
        "backup_tid": recovery.backup_tid,
        "truncate_tid": recovery.truncate_tid,
    }
    data = {
        "last_oid": facts.hex_id(last.loid),
        **{name: facts.hex_id(value) for name, value in tids.items()},
        "last_tid_date": None if last.ltid is None else tid_date(last.ltid),
        "last_ptid": recovery.ptid,
    }
    return Reply(render.id_lines(last.loid, recovery.ptid, tids), data)


@verb("print summary", "one line for monitoring; first line: who has warnings or problems")
def print_summary(admin: AdminClient, arguments: Arguments) -> Reply:
    """Data: ``warnings problems`` (names of backup clusters, null: this one) and ``summary``."""
    answer = admin.ask(AskMonitorInformation())
    lists = {"warnings": answer.warning_list, "problems": answer.problem_list}
    found = {name: clusters for name, clusters in lists.items() if clusters}
    return Reply(f"# {json.dumps(found)}\n{answer.summary}", {**lists, "summary": answer.summary})


@verb("print check", "what the last check of replicas found, by partition")
def print_check(admin: AdminClient, arguments: Arguments) -> Reply:
    """Data: ``min_tid max_tid`` and ``partitions`` (``partition node finding text``)."""
    answer = admin.ask(AskCheckReport())
    rows = [
        {
            "partition": partition,
            "node": None if node is None else format_nid(node),
            "finding": finding,
            "text": text,
        }
        for partition, node, finding, text in answer.row_list
    ]
    data = {
        "min_tid": facts.hex_id(answer.min_tid),
        "max_tid": facts.hex_id(answer.max_tid),
        "partitions": rows,
    }
    return Reply(render.check_text(rows, answer.min_tid, answer.max_tid), data)


@verb("print transactions", "open transactions: client, age, phase, and how many wait for each")
def print_transactions(admin: AdminClient, arguments: Arguments) -> Reply:
    """Data: ``transactions``."""
    rows = facts.transaction_data(admin.ask(AskTransactions()).row_list)
    return Reply(render.transaction_text(rows), {"transactions": rows})


@verb(
    "print prepared [N]",
    "transactions that wait for their coordinator's decision; the last N decisions",
    0,
    1,
)
def print_prepared(admin: AdminClient, arguments: Arguments) -> Reply:
    """Data: ``prepared``."""
    outcomes = natural(arguments.words[0]) if arguments.words else 0
    rows = facts.prepared_data(admin.ask(AskPrepared(outcomes, None)).row_list)
    return Reply(render.prepared_text(rows), {"prepared": rows})


@verb("print backups", "synchronous standbys, or how this cluster follows as one")
def print_backups(admin: AdminClient, arguments: Arguments) -> Reply:
    """Data: ``backups own``."""
    now = time.time()  # before the answer: what was in sync then is told, not more
    answer = admin.ask(AskSync())
    data = facts.sync_data(answer, admin.ask(AskLastTransaction()).tid, now)
    return Reply(render.sync_text(data), data)


@verb("print blobs", "contents of blobs on each storage node, and those that are lost")
def print_blobs(admin: AdminClient, arguments: Arguments) -> Reply:
    """Data: ``blobs``."""
    rows = facts.content_data(admin.ask(AskContents()).row_list)
    return Reply(render.content_text(rows), {"blobs": rows})


@verb("print lost", "lost contents of blobs: node, object, transaction, and the file in a backup", 0, 0)
def print_lost(admin: AdminClient, arguments: Arguments) -> Reply:
    """Data: ``lost``."""
    rows = render.lost_content_data(admin.ask(AskLostContents(LOST_MOST)).row_list)
    return Reply(render.lost_content_text(rows), {"lost": rows})


# -- commands ------------------------------------------------------------------------------------


@verb("start", "start a cluster that waits in RECOVERING, such as a new one")
def start(admin: AdminClient, arguments: Arguments) -> Reply:
    return confirmed(admin.ask(SetClusterState(ClusterState.VERIFYING)))


@verb("set cluster STATE", "verifying, stopping, starting_backup or stopping_backup", 1, 1)
def set_cluster(admin: AdminClient, arguments: Arguments) -> Reply:
    return confirmed(admin.ask(SetClusterState(cluster_state(arguments.words[0]))))


@verb("set primary NODE", "hand over to another master", 1, 1)
def set_primary(admin: AdminClient, arguments: Arguments) -> Reply:
    return confirmed(admin.ask(SetPrimary(nid(arguments.words[0]))))


@verb("set replicas N", "copies besides the first; then: tweak", 1, 1)
def set_replicas(admin: AdminClient, arguments: Arguments) -> Reply:
    wanted = natural(arguments.words[0])
    storages = len(admin.ask(AskNodeList(NodeType.STORAGE)).node_list)
    reply = confirmed(admin.ask(SetNumReplicas(wanted)))
    if wanted < storages:
        return reply
    copies = f"{storages} storage node{'s' if storages != 1 else ''} can keep {storages} of the"
    hint = f"{copies} {wanted + 1} copies: start storage nodes, then: neoctl add all"
    return reply._replace(hint=hint)


@verb("set sync NAME on|off", "wait for a synchronous standby, or not, until the master restarts", 2, 2)
def set_sync(admin: AdminClient, arguments: Arguments) -> Reply:
    name, on = arguments.words
    return confirmed(admin.ask(SetSync(name, switch(on))))


@verb("admit NODE...|all", "take PENDING storage nodes into service without cells", 1, None)
def admit(admin: AdminClient, arguments: Arguments) -> Reply:
    wanted = pending_or_named(admin, arguments.words)
    if not wanted:
        return Reply("No node added", {"message": "No node added"})
    return confirmed(admin.ask(AddPendingNodes(wanted)))


def pending_or_named(admin: AdminClient, words: list[str]) -> list[int]:
    """Return the PENDING storage nodes for ``all``, else the nodes that are named."""
    return _storages(admin, NodeState.PENDING) if words == ["all"] else nids(words)


@verb(
    "tweak [-n] [--force] [NODE...]",
    "balance the partitions, emptying the nodes; -n: only show; --force: also if a disk would be full",
    0,
    None,
)
def tweak(admin: AdminClient, arguments: Arguments) -> Reply:
    """Data: ``changed dry_run``, ``partitions`` as they are to be, and ``moves`` (``nid cells bytes`` of
    nodes that get some)."""
    emptied = nids(arguments.words)
    answer = admin.ask(TweakPartitionTable(True, emptied))
    found = fit(admin, answer.row_list) if answer.changed else NOTHING_MOVES
    if not arguments.dry_run:
        if not arguments.force:
            refuse_full(found)
        answer = admin.ask(TweakPartitionTable(False, emptied))
    table = facts.table_data(None, 0, answer.row_list)
    data = {
        "changed": answer.changed,
        "dry_run": arguments.dry_run,
        "moves": found.data,
        "partitions": table["partitions"],
    }
    if not answer.changed:
        return Reply("No change done.", data)
    nodes = facts.node_data(admin.ask(AskNodeList(NodeType.STORAGE)).node_list)
    body = render.table_by_node(table, nodes).partition("\n")[2]
    title = "It would become:" if arguments.dry_run else "The partition table becomes:"
    return Reply(f"{title}\n{body}", data, 0, found.hint)


@verb("drop NODE", "forget a node that is down, for ever; a PENDING node erases its database", 1, 1)
def drop(admin: AdminClient, arguments: Arguments) -> Reply:
    return confirmed(admin.ask(SetNodeState(nid(arguments.words[0]), NodeState.UNKNOWN)))


@verb("kill NODE", "stop a storage node or a secondary master", 1, 1)
def kill(admin: AdminClient, arguments: Arguments) -> Reply:
    return confirmed(admin.ask(SetNodeState(nid(arguments.words[0]), NodeState.DOWN)))


@verb(
    "check [PARTITION:[NODE]]... [MIN_TID [MAX_TID]]",
    "compare replicas, with NODE as the reference; no PARTITION: all of them",
    0,
    None,
)
def check(admin: AdminClient, arguments: Arguments) -> Reply:
    """The reference of ``:NODE`` applies to all partitions that have no word of their own."""
    words = [cell(word) for word in arguments.words if ":" in word]
    tids = [tid(word) for word in arguments.words if ":" not in word]
    if len(tids) > 2:
        raise CommandError("at most two TIDs, the first and the last to check")
    references: dict[int | None, int | None] = {}
    for partition, reference in words or [(None, None)]:
        if references.setdefault(partition, reference) != reference:
            which = "all partitions" if partition is None else f"partition {partition}"
            raise CommandError(f"{which}: only one node can be the one to believe")
    named = {partition: node for partition, node in references.items() if partition is not None}
    if None in references:
        named = _believing(admin, references[None]) | named
    last = tids[1] if len(tids) > 1 else None
    reply = confirmed(admin.ask(CheckReplicas(named, tids[0] if tids else ZERO_TID, last)))
    compared = counted(len(named), "partition is", "partitions are")
    hint = f"{compared} compared; what is found: neoctl print check"
    first = arguments.words[0] if tids and not words else ""
    if first.isdecimal() and int(first) < PARTITIONS_MAX:
        hint += f". {first} is taken as a TID; partition {first} would be written {first}:"
    return reply._replace(hint=hint)


def _believing(admin: AdminClient, reference: int | None) -> dict[int, int | None]:
    """Return all partitions of which a node can be the reference."""
    rows = admin.ask(AskPartitionList(0, 0, None)).row_list
    readable = [
        partition
        for partition, row in enumerate(rows)
        if any(node == reference and state.readable for node, state in row)
    ]
    # If there is none, the refusal of the master says why.
    return dict.fromkeys(readable or range(len(rows)), reference)


@verb(
    "repair [PARTITION:[NODE]]...",
    "copy CORRUPTED cells anew from good replicas; no PARTITION: all of them",
    0,
    None,
)
def repair(admin: AdminClient, arguments: Arguments) -> Reply:
    """Data: ``message``."""
    rows = admin.ask(AskPartitionList(0, 0, None)).row_list
    cells: dict[tuple[int, int], None] = {}
    for wanted, owner in map(cell, arguments.words or [":"]):
        if wanted is not None and owner is not None:
            cells[wanted, owner] = None  # the master's refusal says if it cannot be repaired
            continue
        if wanted is not None and wanted >= len(rows):
            raise CommandError(f"there is no partition {wanted}: there are {len(rows)}, from 0")
        if owner is not None and not any(owner == node for row in rows for node, _ in row):
            raise CommandError(f"{format_nid(owner)} has no cell of any partition")
        cells |= {
            (partition, node): None
            for partition, row in enumerate(rows)
            for node, state in row
            if state is CellState.CORRUPTED
            and wanted in (None, partition)
            and owner in (None, node)
        }
    return confirmed(admin.ask(RepairCells(list(cells))))


@verb(
    "prune_orphan 0|1 NODE...|all",
    "look for data that no object refers to (1), and delete it (0)",
    2,
    None,
)
def prune_orphan(admin: AdminClient, arguments: Arguments) -> Reply:
    dry_run, *words = arguments.words
    if dry_run not in ("0", "1"):
        raise CommandError(f"{dry_run!r} is neither 0 (delete) nor 1 (only look)")
    wanted = _storages(admin, NodeState.RUNNING) if words == ["all"] else nids(words)
    if not wanted:
        raise CommandError("no storage node is RUNNING", "'neoctl status' tells why")
    return confirmed(admin.ask(Repair(wanted, dry_run == "1")))


@verb("forget_table PTID", "start without a partition table that is lost, and its commits", 1, 1)
def forget_table(admin: AdminClient, arguments: Arguments) -> Reply:
    return confirmed(admin.ask(ForgetTable(natural(arguments.words[0]))))


@verb("end TTID", "abort an open transaction, such as one of a client that is stopped", 1, 1)
def end(admin: AdminClient, arguments: Arguments) -> Reply:
    return confirmed(admin.ask(EndTransaction(tid(arguments.words[0]))))


@verb("commit XID", "commit a prepared transaction, as its coordinator decided", 1, 1)
def commit(admin: AdminClient, arguments: Arguments) -> Reply:
    """Data: ``message tid``."""
    tid = admin.ask(AskFinishPrepared(xid(arguments.words[0]), True)).tid
    message = f"committed as {facts.hex_id(tid)}"
    return Reply(message, {"message": message, "tid": facts.hex_id(tid)})


@verb("rollback XID", "roll back a prepared transaction, or one that is not prepared yet", 1, 1)
def rollback(admin: AdminClient, arguments: Arguments) -> Reply:
    admin.ask(AskFinishPrepared(xid(arguments.words[0]), False))
    return Reply("rolled back", {"message": "rolled back"})


@verb("forget XID", "forget the decision about a transaction, whose coordinator asks no more", 1, 1)
def forget(admin: AdminClient, arguments: Arguments) -> Reply:
    return confirmed(admin.ask(ForgetPrepared(xid(arguments.words[0]))))


@verb("truncate TID", "delete everything after TID, on all nodes, for ever", 1, 1)
def truncate(admin: AdminClient, arguments: Arguments) -> Reply:
    return confirmed(admin.ask(Truncate(tid(arguments.words[0]))))


@verb("flush_log", "make every node write out its log and open the file again")
def flush_log(admin: AdminClient, arguments: Arguments) -> Reply:
    """Check before that a master is connected. FlushLog has no answer; ``notify`` waits for its
    arrival."""
    admin.ask(AskPrimary())
    admin.notify(FlushLog())
    return Reply(None, {"message": ""})
