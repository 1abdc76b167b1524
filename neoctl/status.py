"""``neoctl status``: the cluster on one screen, its problems, and what to do about them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from neo.admin import facts
from neo.admin.facts import Data
from neo.admin.judgement import answer_to, gather, judge, questions
from neo.admin.problems import Problem
from neo.admin.status import status_data
from neo.protocol.enums import ErrorCode, NodeState, NodeType
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import ZERO_TID, time_from_tid
from neo.protocol.packets import (
    Answer,
    AskClusterState,
    AskContents,
    AskDownNodes,
    AskLastIDs,
    AskLastTransaction,
    AskNodeList,
    AskPartitionList,
    AskPrimary,
    AskScrub,
    NodeRow,
    Request,
)
from neoctl.client import AdminClient
from neoctl.disks import ask_disks
from neoctl.screen import to_text
from neoctl.verbs import Reply

#: Exit code: something does not work now.
EXIT_PROBLEM = 3
#: Exit code: this backup does not hear its upstream cluster.
EXIT_UNHEARD = 1


def status_reply(admin: AdminClient) -> Reply:
    """Ask everything, and return the screen and its data.

    Data: see :func:`neo.admin.status.status_data`.
    """
    state = admin.ask(AskClusterState()).state
    primary = admin.ask(AskPrimary()).primary_nid
    last_oid, last_tid = admin.ask(AskLastIDs()).loid, admin.ask(AskLastTransaction()).tid
    nodes, answer = admin.ask(AskNodeList(None)).node_list, admin.ask(AskPartitionList(0, 0, None))
    table = facts.table_data(answer.ptid, answer.num_replicas, answer.row_list)
    words, began = _words(admin, nodes), time.time()
    answers = _answers(admin, [*questions(state), AskContents(), AskScrub()])
    found = gather(state, nodes, table, words, answers, last_tid, began)
    now = time.time()
    problems = judge(found, now)
    data = status_data(
        found,
        problems,
        primary=primary,
        last_oid=last_oid,
        last_tid=last_tid,
        scrub=answer_to(answers, AskScrub),
        disks=ask_disks(admin),
    )
    last = None if last_tid == ZERO_TID else time_from_tid(last_tid)
    return Reply(to_text(data, now, last), data, _exit_code(problems, found.upstream))


def _exit_code(problems: list[Problem], upstream: Data | None) -> int:
    if upstream is not None and not upstream["heard"]:
        return EXIT_UNHEARD
    return EXIT_PROBLEM if any(problem.severity == "problem" for problem in problems) else 0


def _answers(
    admin: AdminClient, asked: Iterable[Request[Answer]]
) -> dict[type[Request[Any]], Answer]:
    """Return the answers, without those to questions that the master does not know or that do not
    apply."""
    answers: dict[type[Request[Any]], Answer] = {}
    for question in asked:
        try:
            answers[type(question)] = admin.ask(question)
        except ErrorAnswer as e:
            if e.code is not ErrorCode.DENIED:
                raise
    return answers


def _words(admin: AdminClient, nodes: Iterable[NodeRow]) -> dict[int, str]:
    """Return the messages of storage processes that run although their nodes are down."""
    down = any(row[0] is NodeType.STORAGE and row[3] is NodeState.DOWN for row in nodes)
    return dict(admin.ask(AskDownNodes()).node_list) if down else {}
