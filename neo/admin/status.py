"""The status of a cluster as data: what ``neoctl status --json`` prints, and what the web page shows."""

from __future__ import annotations

from collections.abc import Iterable

from neo.admin import facts
from neo.admin.facts import Data
from neo.admin.judgement import Evidence
from neo.admin.monitor import SERVING, tid_date
from neo.admin.problems import Problem, can_lose
from neo.protocol.ids import format_nid
from neo.protocol.packets import AnswerScrub, NodeDisksRow


def status_data(
    found: Evidence,
    problems: Iterable[Problem],
    *,
    primary: int,
    last_oid: bytes | None,
    last_tid: bytes,
    scrub: AnswerScrub | None,
    disks: Iterable[NodeDisksRow],
) -> Data:
    """Return all that is known of a cluster.

    Keys: ``state primary``; ``election`` (see ``facts.election_data``, null if there is one master);
    ``upstream`` (of a backup: ``cluster heard ever seconds reason``, else null); ``last_oid last_tid
    last_tid_date``; ``nodes`` (see ``facts.node_data``; storage nodes also have ``cells``, state ->
    count, and ``says`` if down); ``ptid replicas partitions``; ``can_lose`` (storage nodes that may be
    lost without losing service, null if the cluster does not serve); ``scrub`` (see AnswerScrub; null if
    copies are not compared in the background); ``sync`` (see ``facts.sync_data``; null if the master
    does not know it); ``blobs`` (see ``facts.content_data``); ``operations`` in progress (see
    ``facts.operation_data``); ``conditions`` (see ``facts.condition_data``); ``disks``
    (see ``facts.disk_data``); ``problems`` (``severity text advice`` of each).
    """
    state = found.state
    return {
        "state": None if state is None else state.name,
        "primary": format_nid(primary),
        "election": found.election,
        "upstream": found.upstream,
        "last_oid": facts.hex_id(last_oid),
        "last_tid": facts.hex_id(last_tid),
        "last_tid_date": tid_date(last_tid),
        "nodes": found.nodes,
        **found.table,
        "can_lose": can_lose(found.nodes, found.table) if state in SERVING else None,
        "scrub": _scrub(scrub),
        "sync": found.sync,
        "blobs": found.blobs,
        "operations": found.operations,
        "conditions": found.conditions,
        "disks": facts.disk_data(disks),
        "problems": [
            {"severity": severity, "text": text, "advice": advice}
            for severity, text, advice, _ in problems
        ],
    }


def _scrub(answer: AnswerScrub | None) -> Data | None:
    if answer is None or not answer.period:
        return None
    return {
        "period_seconds": answer.period,
        "begun": answer.begun,
        "round_end": answer.round_end,
        "compared": answer.compared,
    }
