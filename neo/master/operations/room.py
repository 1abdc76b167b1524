"""An operation for which a disk has no room is refused before it begins: a backup (specification 27.56),
or a move of cells (specification 27.79)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neo.master.cluster import Cluster
from neo.master.maintenance.reports import Reports
from neo.master.operations.kinds import Steps
from neo.master.operations.moves import cells_gained
from neo.node.core import Core
from neo.node.task import Future, first
from neo.operations.initiator import Refused
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.ids import format_nid, format_nids
from neo.protocol.packets import FEATURE_OURS, AnswerRoom, AskRoom
from neo.protocol.room import filled_disk, needed_bytes

#: Timeout for a node to look at its folder. The backup itself says what is wrong with a disk that hangs.
ANSWER_SECONDS = 10.0


class BackupRoom:
    def __init__(self, cluster: Cluster, core: Core) -> None:
        self._cluster = cluster
        self._core = core

    async def check(self, steps: Steps, asked: Mapping[str, Any]) -> None:
        """Ask the nodes that would copy. Raise Refused if what they need together is more than a disk
        has."""
        answers = await self._ask(steps)
        disks: dict[str, list[int]] = {}
        for nid, answer in answers.items():
            if answer.free is not None:
                disks.setdefault(answer.disk, []).append(nid)
        for nids in disks.values():
            needed = sum(answers[nid].needed for nid in nids)
            free = min(answers[nid].free or 0 for nid in nids)
            if needed > free:
                raise Refused(
                    f"the backup needs about {_bytes(needed)} on the disk of"
                    f" {steps.arguments['path']} of {format_nids(nids)}, and {_bytes(free)} are free:"
                    " remove old copies, or choose another folder"
                )

    async def _ask(self, steps: Steps) -> dict[int, AnswerRoom]:
        """Return the answers of the nodes that know the question, and answer."""
        path, full, tid = (steps.arguments[key] for key in ("path", "full", "tid"))
        mine: dict[int, list[int]] = {}
        for partition, nid in enumerate(steps.arguments["readers"]):
            mine.setdefault(nid, []).append(partition)
        asked: dict[int, Future[AnswerRoom]] = {}
        for nid, partitions in sorted(mine.items()):
            peer = self._cluster.connected.get(nid)
            if peer is not None and peer.node is not None and FEATURE_OURS in peer.node.features:
                asked[nid] = peer.ask(AskRoom(path, full, bytes.fromhex(tid), partitions))
        limit, answers = self._core.sleep(ANSWER_SECONDS), {}
        for nid, future in asked.items():
            await first(future, limit)
            try:
                if future.done:
                    answers[nid] = future.result()
            except (ConnectionLost, ErrorAnswer):
                continue  # the steps will say why
        return answers


class MoveRoom:
    """``reports``: what storage nodes say of their disks."""

    def __init__(self, cluster: Cluster, reports: Reports) -> None:
        self._cluster = cluster
        self._reports = reports

    async def check(self, steps: Steps, asked: Mapping[str, Any]) -> None:
        """Ask the nodes. Raise Refused if a node's disk would be filled by the cells that it gets, unless
        the operator knows better (``force``). Nodes that do not answer refuse nothing."""
        gains = cells_gained(steps)
        if asked.get("force") or not gains:
            return
        rows = {nid: (size, disks) for nid, _, size, disks in (await self._reports.disks()).row_list}
        needed = needed_bytes(
            self._cluster.partitions.rows, gains, {nid: size for nid, (size, _) in rows.items()}
        )
        full = []
        for nid, size in sorted(needed.items()):
            _, disks = rows.get(nid, (0, []))
            if (disk := filled_disk(size, disks)) is not None:
                what, free, total = disk
                full.append(
                    f"{format_nid(nid)} would get about {_bytes(size)}, and {_bytes(free)} of"
                    f" {_bytes(total)} are free on the disk of its {what}"
                )
        if full:
            advice = "free space, name other nodes, or, if you know better: --force"
            raise Refused(f"{'; '.join(full)}: {advice}")


def _bytes(number: int) -> str:
    return f"{number / 1e6:.1f} MB" if number < 1e9 else f"{number / 1e9:.1f} GB"
