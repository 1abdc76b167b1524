"""Judge the health of a cluster: the one judgement of ``neoctl status``, the summary for monitoring and
mails (specification 17.33).

Pure. Whoever judges asks the primary master :func:`questions`, directly or through an admin node, lets
:func:`gather` make the answers evidence, and gets the problems from :func:`judge`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, cast

from msgspec.structs import asdict

from neo.admin import facts
from neo.admin.facts import Data
from neo.admin.problems import (
    Problem,
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
from neo.protocol.enums import ClusterState, NodeType
from neo.protocol.ids import format_nid
from neo.protocol.packets import (
    A,
    Answer,
    AskCheckReport,
    AskContents,
    AskElection,
    AskNodeConditions,
    AskObstacle,
    AskOperations,
    AskPrepared,
    AskSync,
    AskTransactions,
    AskUpstream,
    NodeRow,
    PreparedRow,
    Request,
    TransactionRow,
)

BACKUP_STATES = (ClusterState.STARTING_BACKUP, ClusterState.BACKINGUP)
#: The answers of a primary master, by the type of the question. Questions that do not apply have none.
Answers = Mapping[type[Request[Any]], Answer]


class Evidence(NamedTuple):
    """What a cluster says of itself, as data of :mod:`neo.admin.facts`. None stands for what does not
    apply, or what the master does not tell."""

    state: ClusterState | None
    #: Storage nodes also have ``cells``, state -> count, and ``says`` if they are down: the message of
    #: the process, empty if it runs without a message, None if it was not reached.
    nodes: list[Data]
    table: Data
    election: Data | None
    #: Of a backup: ``cluster heard ever seconds reason``.
    upstream: Data | None
    #: What a cluster in RECOVERING waits for.
    obstacle: Data | None
    checks: list[tuple[int, int | None, str, str]]
    transactions: list[TransactionRow]
    prepared: list[PreparedRow]
    sync: Data | None
    blobs: list[Data]
    #: Those in progress.
    operations: list[Data]
    conditions: list[Data]


def questions(state: ClusterState | None) -> Iterator[Request[Answer]]:
    """Yield what a primary master is asked; one of another implementation knows none of it. AskContents
    is missing, because storage nodes count their rows for it: ``neoctl status`` asks it besides."""
    if state in BACKUP_STATES:
        yield AskUpstream()
    if state is ClusterState.RECOVERING:
        yield AskObstacle()
    yield AskElection()
    yield AskCheckReport()
    yield AskTransactions()
    yield AskPrepared(0, None)
    yield AskSync()
    yield AskOperations(None)
    yield AskNodeConditions()


def answer_to(answers: Answers, question: type[Request[A]]) -> A | None:
    """Return the answer to a question of this type, if there is one."""
    return cast("A | None", answers.get(question))


def gather(
    state: ClusterState | None,
    nodes: Iterable[NodeRow],
    table: Data,
    words: Mapping[int, str],
    answers: Answers,
    last_tid: bytes,
    now: float,
) -> Evidence:
    """``words``: of storage nodes that are DOWN and were reached. ``now``: a time before the answers."""
    election, obstacle = answer_to(answers, AskElection), answer_to(answers, AskObstacle)
    checks, transactions = answer_to(answers, AskCheckReport), answer_to(answers, AskTransactions)
    prepared, sync = answer_to(answers, AskPrepared), answer_to(answers, AskSync)
    blobs, operations = answer_to(answers, AskContents), answer_to(answers, AskOperations)
    conditions = answer_to(answers, AskNodeConditions)
    rows = [] if operations is None else map(facts.operation_data, operations.row_list)
    return Evidence(
        state=state,
        nodes=_nodes(nodes, table, words),
        table=table,
        election=None if election is None else facts.election_data(election),
        upstream=_upstream(answers),
        obstacle=None if obstacle is None else asdict(obstacle),
        checks=[] if checks is None else checks.row_list,
        transactions=[] if transactions is None else transactions.row_list,
        prepared=[] if prepared is None else prepared.row_list,
        sync=None if sync is None else facts.sync_data(sync, last_tid, now),
        blobs=[] if blobs is None else facts.content_data(blobs.row_list),
        operations=[row for row in rows if row["state"] not in facts.OPERATION_ENDED],
        conditions=[] if conditions is None else facts.condition_data(conditions.row_list),
    )


def judge(found: Evidence, now: float) -> list[Problem]:
    """Return all problems, in the order in which people are told of these."""
    state, nodes, election = found.state, found.nodes, found.election
    by_subject = {
        "checks": find_check_problems(found.checks),
        "upstream": find_upstream_problems(found.upstream, nodes, now),
        "sync": find_sync_problems(state, found.sync, found.upstream, now),
        "transactions": find_blocking(found.transactions, found.prepared),
        "prepared": find_undecided(found.prepared, now),
        "contents": find_content_problems(state, found.blobs, nodes),
        "conditions": find_node_problems(found.conditions),
        "operations": find_operation_problems(found.operations, nodes),
        "tables": find_problems(
            state, nodes, found.table, found.obstacle, election, stuck(found.conditions)
        ),
        "masters": find_master_problems(election),
    }
    return [
        problem if problem.subject else problem._replace(subject=subject)
        for subject, problems in by_subject.items()
        for problem in problems
    ]


def _nodes(rows: Iterable[NodeRow], table: Data, words: Mapping[int, str]) -> list[Data]:
    nodes = facts.node_data(rows)
    says = {format_nid(nid): text for nid, text in words.items()}
    for node in nodes:
        if node["type"] == NodeType.STORAGE.name:
            cells = (row["cells"].get(node["nid"]) for row in table["partitions"])
            node["cells"] = dict(Counter(state for state in cells if state is not None))
            if node["state"] == "DOWN":
                node["says"] = says.get(node["nid"])
    return nodes


def _upstream(answers: Answers) -> Data | None:
    answer = answer_to(answers, AskUpstream)
    if answer is None:
        return None
    return {
        "cluster": answer.cluster,
        "heard": answer.seconds is None,
        "ever": answer.ever,
        "seconds": answer.seconds,
        "reason": answer.reason,
    }
