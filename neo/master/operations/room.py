"""A backup for which a disk has no room is refused before it begins (specification 27.56)."""

from __future__ import annotations

from neo.master.cluster import Cluster
from neo.master.operations.kinds import Steps
from neo.node.core import Core
from neo.node.task import Future, first
from neo.operations.initiator import Refused
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.ids import format_nids
from neo.protocol.packets import FEATURE_OURS, AnswerRoom, AskRoom

#: Timeout for a node to look at its folder. The backup itself says what is wrong with a disk that hangs.
ANSWER_SECONDS = 10.0


class BackupRoom:
    def __init__(self, cluster: Cluster, core: Core) -> None:
        self._cluster = cluster
        self._core = core

    async def check(self, steps: Steps) -> None:
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


def _bytes(number: int) -> str:
    return f"{number / 1e6:.1f} MB" if number < 1e9 else f"{number / 1e9:.1f} GB"
