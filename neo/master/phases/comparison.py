"""Compare the readable cells of each partition before service; :mod:`neo.master.phases.tails` judges.

Copies are compared at the end of verification. Interrupted transactions are finished on all nodes by
then, so that sound copies are equal, however their nodes crashed. Nothing else writes.

A cell that is behind becomes OUT_OF_DATE and is replicated. If no copy of a partition can be trusted, the
cluster goes back to RECOVERING and waits for the operator: :class:`Disagreement`.

Nodes of other implementations are not compared; their copies are trusted. In a backup cluster
cells are compared up to the least ``backup_tid``, up to which all of them are complete. A node that joins
a serving cluster has no readable cell: it is not compared, but replicates. While nodes load an archive,
nothing is compared (specification 27.103).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from neo.master.cluster import Cluster, left_behind
from neo.master.maintenance.check import Checks
from neo.master.parts import Operation
from neo.master.phases.tails import Lack, Tail, Verdict, judge, make_tail
from neo.master.phases.verification import ask_each
from neo.node.task import Checkpoint
from neo.protocol.ids import format_nid, format_nids
from neo.protocol.packets import FEATURE_OURS, TAIL_LENGTH, AskTails
from neo.protocol.words import counted

logger = logging.getLogger("neo.master")

#: Partitions of one question: an answer has 300 kB at most, and a node reads for about 50 ms.
PARTITIONS_TOGETHER = 64

#: By partition and node.
Tails = dict[int, dict[int, Tail]]


@dataclass
class Disagreement:
    """No copy of some partitions can be trusted: the cluster does not serve, though its nodes are
    connected.

    It lasts until the operator starts the cluster without one of ``nids``, or until all of them are
    connected and one was away meanwhile, perhaps to get another disk: then everything is compared again.
    ``no_choice``: only one copy of each partition is here, which the operator can accept.
    """

    nids: frozenset[int]
    text: str
    no_choice: bool
    changed: bool = False

    def obstacle(self, present: set[int], forced: bool) -> str | None:
        """Return why the cluster may not start with these nodes; None if it may."""
        absent = self.nids - present
        if absent:
            return None if forced else f"{self.text}. {format_nids(absent)} may also come back"
        if self.changed or (forced and self.no_choice):
            return None
        return self.text


class Comparison:
    """``disagreement``: result of the last comparison that the operator must decide; None if there is
    none."""

    def __init__(self, cluster: Cluster, checks: Checks, operation: Operation) -> None:
        self._cluster = cluster
        self._checks = checks
        self._operation = operation
        self.disagreement: Disagreement | None = None

    def storages_lost(self, present: set[int]) -> None:
        """Note that only these storage nodes are connected any more."""
        if self.disagreement is not None and not self.disagreement.nids <= present:
            self.disagreement.changed = True

    async def compare(self, max_tid: bytes | None, forced: bool) -> None:
        """Make cells OUT_OF_DATE that are behind. ``max_tid``: rows with later tids are not compared.
        ``forced``: where no other copies are left, the operator accepts copies that may be incomplete.

        Nodes that are lost meanwhile are left out. Where the operator must decide, the cluster goes back
        to RECOVERING and this workflow is cancelled.
        """
        cluster = self._cluster
        self.disagreement = None
        self._checks.forget_comparison()
        found = await _verdicts(cluster, max_tid)
        here = _comparable(cluster)
        verdicts = {p: _present(cluster, p, verdict, here[p]) for p, verdict in found.items()}
        undecided = {
            partition: verdict
            for partition, verdict in verdicts.items()
            if verdict.undecided and not (forced and _incomplete(verdict))
        }
        if undecided:
            asked = {p: found[p].references | found[p].lacks.keys() for p in undecided}
            lost = {nid for p, nids in asked.items() for nid in nids.difference(here[p])}
            self.disagreement = _disagreement(undecided, lost)
            self._checks.compared({p: _choice(v) for p, v in undecided.items()}, decided=False)
            self._operation.back_to_recovery(self.disagreement.text)
            await Checkpoint()
        behind = {p: v for p, v in verdicts.items() if v.references and v.lacks}
        if behind:
            _log_behind(behind)
            self._checks.compared(
                {
                    p: f"{_lacks(verdict)}: replicated from {format_nids(verdict.references)}"
                    for p, verdict in behind.items()
                },
                decided=True,
            )
            rows = cluster.partitions.rows
            cluster.change_partitions(
                [
                    (p, nid, left_behind(rows[p][nid]))
                    for p, verdict in behind.items()
                    for nid in sorted(verdict.lacks)
                ]
            )


# -- questions -------------------------------------------------------------------------------------


async def _verdicts(cluster: Cluster, max_tid: bytes | None) -> dict[int, Verdict]:
    """Return the verdicts of partitions whose cells differ. Nodes may be lost meanwhile."""
    tails = await _ask(cluster, _comparable(cluster), max_tid)
    verdicts = {p: verdict for p, of in tails.items() if not (verdict := judge(of)).equal}
    for partition, verdict in list(verdicts.items()):
        for nid in [nid for nid, lack in verdict.lacks.items() if lack.transactions]:
            if verdict.references:
                last = tails[partition][nid].last
                verdicts[partition] = verdict = await _earlier(
                    cluster, partition, verdict, nid, last
                )
    return verdicts


async def _earlier(
    cluster: Cluster, partition: int, verdict: Verdict, nid: int, last: bytes
) -> Verdict:
    """Check that a reference has all rows of a cell that is behind. The cell may be far behind, so the
    reference is asked for its rows up to the last one of the cell."""
    reference = min(verdict.references)
    tails = await _ask(cluster, {partition: [reference, nid]}, last)
    lack = judge(tails[partition]).lacks.get(reference)
    if lack is None or not lack.transactions:
        return verdict
    return Verdict(frozenset(), {**verdict.lacks, reference: lack})


def _comparable(cluster: Cluster) -> dict[int, list[int]]:
    """Return the running nodes with a readable cell of each partition that can be compared."""
    able = {
        nid
        for nid in cluster.running_storages()
        if (node := cluster.nodes.get(nid)) is not None and FEATURE_OURS in node.features
    }
    table = cluster.partitions
    return {p: [n for n in table.readable(p) if n in able] for p in range(len(table))}


def _present(cluster: Cluster, partition: int, verdict: Verdict, here: list[int]) -> Verdict:
    """Leave out nodes that were lost. Trust copies that were not compared rather than an incomplete
    one."""
    references = verdict.references.intersection(here)
    lacks = {nid: lack for nid, lack in verdict.lacks.items() if nid in here}
    if not references and _incomplete(Verdict(references, lacks)):
        readable = cluster.running_storages().intersection(cluster.partitions.readable(partition))
        references = frozenset(readable - lacks.keys())
    return Verdict(references, lacks)


async def _ask(
    cluster: Cluster, cells: Mapping[int, Collection[int]], max_tid: bytes | None
) -> Tails:
    """Return the tails of the nodes that answered."""
    of_node: dict[int, list[int]] = {}
    for partition, nids in cells.items():
        for nid in nids:
            of_node.setdefault(nid, []).append(partition)
    questions = [
        (peer, AskTails(partitions[i : i + PARTITIONS_TOGETHER], max_tid, TAIL_LENGTH))
        for nid, partitions in of_node.items()
        if (peer := cluster.connected.get(nid)) is not None
        for i in range(0, len(partitions), PARTITIONS_TOGETHER)
    ]
    tails: Tails = {partition: {} for partition in cells}
    for nid, answer in await ask_each(cluster, questions):
        for row in answer.tail_list:
            if nid in cells.get(row[0], ()):
                tails[row[0]][nid] = make_tail(TAIL_LENGTH, answer.pack_tid, row)
    return tails


# -- consequences ----------------------------------------------------------------------------------


def _incomplete(verdict: Verdict) -> bool:
    """Return whether copies lack no transaction, but may be incomplete, as their nodes report."""
    return not any(lack.transactions for lack in verdict.lacks.values())


def _disagreement(undecided: Mapping[int, Verdict], lost: Collection[int]) -> Disagreement:
    """``lost``: nodes that were compared, too, and were lost since."""
    nids = frozenset(nid for verdict in undecided.values() for nid in verdict.lacks)
    names, partitions = format_nids(nids), ", ".join(map(str, sorted(undecided)))
    if all(map(_incomplete, undecided.values())):
        text = (
            f"{names} never had all of partitions {partitions}, and no other copy is here: start the"
            " nodes that have one; or accept that data is missing: neoctl start"
        )
        return Disagreement(nids, text, no_choice=True)
    lacks = (lack for verdict in undecided.values() for lack in verdict.lacks.values())
    since = min(lack.since for lack in lacks if lack.transactions).hex()
    if lost:
        others = format_nids(lost)
        text = (
            f"{others} was lost while copies were compared, and has transactions from {since} on that"
            f" {names} lacks in partitions {partitions}. To keep them: stop {names} and the master, start"
            f" the master and {others}, then neoctl start. To give them up: neoctl start"
        )
        return Disagreement(nids, text, no_choice=True)
    text = (
        f"the copies of partitions {partitions} on {names} differ from {since} on, and none has all that"
        f" the others have (neoctl print check): {DECIDE}"
    )
    return Disagreement(nids, text, no_choice=False)


#: Advice for the operator if no copy can be trusted.
DECIDE = (
    "stop the node that is not to be believed, then neoctl start; when it is started again it becomes a"
    " copy of the others"
)


def _choice(verdict: Verdict) -> str:
    if _incomplete(verdict):
        names = format_nids(verdict.lacks)
        return f"{names} never had all of it, and no other copy is here: neoctl start"
    return f"{_lacks(verdict)}: {DECIDE}"


def _lacks(verdict: Verdict) -> str:
    return ", ".join(
        f"{format_nid(nid)} lacks at least {_transactions(lack.transactions)} from {lack.since.hex()} on"
        if lack.transactions
        else f"{format_nid(nid)} was never complete"
        for nid, lack in sorted(verdict.lacks.items())
    )


def _transactions(count: int) -> str:
    return counted(count, "transaction")


def _log_behind(behind: Mapping[int, Verdict]) -> None:
    by_node: dict[int, dict[int, Lack]] = {}
    for partition, verdict in behind.items():
        for nid, lack in verdict.lacks.items():
            by_node.setdefault(nid, {})[partition] = lack
    for nid, lacks in sorted(by_node.items()):
        partitions = ", ".join(map(str, sorted(lacks)))
        tids = [lack.since for lack in lacks.values() if lack.transactions]
        if tids:
            logger.error(
                "%s went back in time: in partitions %s it lacks transactions from %s on that its"
                " replicas have. An old copy of its database was started, or the end of its log is lost:"
                " check its disk. The missing transactions are copied from the replicas",
                format_nid(nid),
                partitions,
                min(tids).hex(),
            )
        else:
            logger.error(
                "%s never had all of partitions %s, as its own database says: they are copied from"
                " replicas",
                format_nid(nid),
                partitions,
            )
