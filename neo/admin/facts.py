"""Answers as data: what ``--json`` prints, and what the problems of a cluster are found in.

The keys of the data are documented at each function. Nodes are written ``S1``, ids ``0x…`` with 16
digits, states by name, times in seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from neo.admin.monitor import lag, tid_date
from neo.net.sockets import format_address
from neo.protocol.ids import format_nid, format_xid, tid_from_time
from neo.protocol.packets import (
    AnswerElection,
    AnswerSync,
    CacheRow,
    CellRow,
    Condition,
    ContentRow,
    NodeDisksRow,
    NodeRow,
    OperationRow,
    PreparedRow,
    StepRow,
    SyncRow,
    TransactionRow,
)

#: States of an operation that is over.
OPERATION_ENDED = ("SUCCEEDED", "FAILED")
UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))

Data = dict[str, Any]


def hex_id(id_: bytes | None) -> str | None:
    """Return an oid or a tid with all 16 digits, so that texts sort as ids do."""
    return None if id_ is None else f"0x{id_.hex()}"


def duration(seconds: float) -> str:
    """Return ``3 hours``: the largest unit, rounded down."""
    for size, name in UNITS:
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {name}{'s' if count > 1 else ''}"
    return "less than a second"


def node_data(rows: Iterable[NodeRow]) -> list[Data]:
    """Return ``nid type address state id_timestamp`` of each node, by node id; times are seconds, UTC."""
    ordered = sorted(rows, key=lambda row: (row[2] is not None, row[2] or 0))
    return [
        {
            "nid": format_nid(nid),
            "type": node_type.name,
            "address": None if address is None else format_address(address),
            "state": state.name,
            "id_timestamp": id_timestamp,
        }
        for node_type, address, nid, state, id_timestamp in ordered
    ]


def election_data(answer: AnswerElection) -> Data:
    """Return ``epoch lease tid ptid masters``, lease in seconds; each master: ``nid address role tid
    note``."""
    return {
        "epoch": answer.epoch,
        "lease": round(answer.lease, 3),
        "tid": answer.tid,
        "ptid": answer.ptid,
        "masters": [
            {
                "nid": format_nid(nid),
                "address": format_address(address),
                "role": role,
                "tid": tid,
                "note": note,
            }
            for nid, address, role, tid, note in answer.master_list
        ],
    }


def table_data(
    ptid: int | None, replicas: int, rows: Sequence[Sequence[CellRow]], first: int = 0
) -> Data:
    """Return ``ptid replicas partitions``; each partition: ``partition`` and ``cells``, node -> state."""
    return {
        "ptid": ptid,
        "replicas": replicas,
        "partitions": [
            {
                "partition": first + offset,
                "cells": {format_nid(nid): state.name for nid, state in sorted(row)},
            }
            for offset, row in enumerate(rows)
        ],
    }


def transaction_data(rows: list[TransactionRow]) -> list[Data]:
    """Return ``ttid client address age phase waiting seconds`` of each.

    ``address``: null if the client is not connected. ``age``: seconds. ``waiting``: how many transactions
    wait for it, the first of them for ``seconds``. ``phase``: ``begun``, ``storing``, ``waiting``,
    ``voted``, ``finishing``, or ``ended`` by the operator.
    """
    return [
        {
            "ttid": hex_id(ttid),
            "client": format_nid(client),
            "address": None if address is None else format_address(address),
            "age": round(age, 1),
            "phase": phase,
            "waiting": waiting,
            "seconds": round(seconds, 1),
        }
        for ttid, client, address, age, phase, waiting, seconds in rows
    ]


def prepared_data(rows: list[PreparedRow]) -> list[Data]:
    """Return ``xid ttid tid since objects text state`` of each.

    ``xid``: as the verbs accept it. ``tid``: null unless it is committed. ``since``: when it was
    prepared, or decided, seconds since 1970. ``objects``: how many it stores and checks. ``state``:
    ``prepared``, ``committing``, ``rolling back``, ``committed``, ``rolled back``, or in a synchronous
    backup ``kept``: it is prepared upstream.
    """
    return [
        {
            "xid": format_xid(xid),
            "ttid": hex_id(ttid),
            "tid": hex_id(tid),
            "since": since,
            "objects": objects,
            "text": text.decode("utf-8", "replace"),
            "state": state,
        }
        for xid, ttid, tid, since, objects, text, state in rows
    ]


def content_data(rows: Iterable[ContentRow]) -> list[Data]:
    """Return ``nid contents bytes free lost unverified`` of each storage node that keeps contents of
    blobs.

    ``free``: bytes of its disk. ``lost``: contents whose files are missing or damaged. ``unverified``:
    partitions whose contents are still to be compared with their checksums.
    """
    return [
        {
            "nid": format_nid(nid),
            "contents": count,
            "bytes": size,
            "free": free,
            "lost": lost,
            "unverified": left,
        }
        for nid, count, size, free, lost, left in rows
    ]


def disk_data(rows: Iterable[NodeDisksRow]) -> list[Data]:
    """Return ``nid version bytes`` and ``disks`` (``what free total``) of each node."""
    return [
        {
            "nid": format_nid(nid),
            "version": version,
            "bytes": size,
            "disks": [{"what": what, "free": free, "total": total} for what, free, total in disks],
        }
        for nid, version, size, disks in rows
    ]


def cache_data(rows: Iterable[CacheRow]) -> list[Data]:
    """Return ``nid name capacity bytes entries hits misses`` of the cache of each client that tells.

    ``name``: host and process. ``capacity`` and ``bytes``: of memory. ``hits`` and ``misses``: loads that
    the cache answered, and loads that went to storage nodes, since the storage was opened.
    """
    names = "name", "capacity", "bytes", "entries", "hits", "misses"
    return [
        {"nid": format_nid(nid), **dict(zip(names, row, strict=True))} for nid, *row in rows
    ]


def condition_data(rows: Iterable[tuple[int, Condition]]) -> list[Data]:
    """Return ``nid kind severity text advice`` of what is wrong with storage nodes. ``kind``: ``room``,
    ``upload``, ``content``, ``copy``, ``statement``, or one of a later version. ``severity``: ``problem``
    or ``warning``."""
    names = "kind", "severity", "text", "advice"
    return [{"nid": format_nid(nid), **dict(zip(names, row, strict=True))} for nid, row in rows]


def sync_data(answer: AnswerSync, last_tid: bytes, now: float) -> Data:
    """Return ``backups``, and ``own``: this cluster as a synchronous backup, null if it is none.

    Each: ``name`` (of ``own``, that of the upstream cluster), ``state`` (``off``, ``async``, ``joining``,
    ``sync`` or ``lost``), ``since``, ``until`` (when it was last known to be in sync, null if it never
    was), ``tid`` up to which it is complete and ``tid_date``, ``reason``. Times are seconds since 1970.
    Backups also have ``lost``: how many seconds of commits are lost at most if the backup takes over
    now, null if unknown. ``last_tid``: the last commit. ``now``: a time before the answer.
    """
    backups = [
        {**_sync_row(row, now), "lost": _sync_loss(row, last_tid)} for row in answer.backup_list
    ]
    return {"backups": backups, "own": None if answer.own is None else _sync_row(answer.own, now)}


def _sync_row(row: SyncRow, now: float) -> Data:
    name, state, since, tid, seconds, reason = row
    return {
        "name": name,
        "state": state,
        "since": since,
        "until": None if seconds is None else now - seconds,
        "tid": hex_id(tid),
        "tid_date": None if tid is None else tid_date(tid),
        "reason": reason,
    }


def _sync_loss(row: SyncRow, last_tid: bytes) -> float | None:
    """Return the least of what is known: the commits since the backup was in sync are lost at most, and
    those after the tid up to which it is complete."""
    _, state, _, tid, seconds, _ = row
    if state == "sync":
        return 0.0
    return min((s for s in (seconds, lag(tid, last_tid)) if s is not None), default=None)


def second(seconds: float) -> str:
    """Return ``2026-11-25 12:00:00`` in UTC, rounded down."""
    return tid_date(tid_from_time(seconds)).partition(".")[0]


def operation_data(row: OperationRow) -> Data:
    """Return ``id kind arguments state since locks text steps progress done``: ``steps``: ``name nodes
    synchronised undo``; ``progress``: ``node step mark done text`` of each; ``done``: from 0 to 1."""
    id, kind, values, state, since, locks, text, steps, progress = row
    parts = sum(len(step[1]) for step in steps)
    return {
        "id": id,
        "kind": kind,
        "arguments": {key: _plain(value) for key, value in values.items()},
        "state": state,
        "since": since,
        "locks": locks,
        "text": text,
        "steps": [operation_step_data(step) for step in steps],
        "progress": [
            {"node": _peer(node), "step": step, "mark": mark, "done": done, "text": words}
            for node, step, mark, done, words in progress
        ],
        "done": sum(done for *_, done, _ in progress) / parts if parts else 1.0,
    }


def _plain(value: object) -> object:
    return hex_id(value) if isinstance(value, bytes) else value


def _peer(nid: int) -> str:
    """Return the name of a peer of an operation: 0 is the primary master, whoever that is."""
    return format_nid(nid) if nid else "the master"


def operation_step_data(step: StepRow) -> Data:
    name, nodes, synchronised, undo = step
    return {
        "name": name,
        "nodes": [_peer(node) for node in nodes],
        "synchronised": synchronised,
        "undo": undo,
    }
