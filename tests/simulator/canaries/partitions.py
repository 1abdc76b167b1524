"""Bugs of another number of partitions."""

from __future__ import annotations

from collections.abc import Iterator

from neo.client.commit import finish
from neo.client.connect.connections import Backoff
from neo.client.connect.master import MasterConnection
from neo.client.read.replicas import Replicas, Where
from neo.operations.model import Operation
from neo.protocol.ids import MAX_TID
from neo.protocol.packets import AskFinalTID
from neo.storage.backend import regrouped
from neo.storage.maintenance.cleanup import Eraser, drop_regrouped
from neo.storage.operations.partitions import Regroups
from tests.simulator import operations
from tests.simulator.planting import Canary, Patch

_OPTIONS = {
    "workloads": ("counters",),
    "faults": ("kill-server", "reset"),
    "backup": False,
    "operations": True,
    "storages": 3,
    "seconds": 10.0,
}
#: Nearly every wish of the operator is another number of partitions.
_OFTEN: list[Patch] = [(operations, "MOVE_CHANCE", 0.0), (operations, "SWITCH_CHANCE", 0.9)]


def _outcome_of_the_ttid() -> list[Patch]:
    def final_tid(
        master: MasterConnection, replicas: Replicas, ttid: bytes, partitions: int, backoff: Backoff
    ) -> bytes | None:
        question = AskFinalTID(ttid)
        answer = master.ask(question, backoff)
        if answer.tid != MAX_TID:
            return answer.tid
        return replicas.read(ttid, question, backoff).tid

    return [*_OFTEN, (finish, "final_tid", final_tid)]


def _rows_deleted_by_the_undo() -> list[Patch]:
    async def undo(self: Regroups, operation: Operation, undo: bytes) -> None:
        await drop_regrouped(self._database, self._background, lambda: False)

    return [*_OFTEN, (Regroups, "undo", undo)]


def _changes_made_once() -> list[Patch]:
    def triggers(partitions: int) -> Iterator[str]:
        return iter(())

    return [*_OFTEN, (regrouped, "_triggers", triggers)]


def _partition_of_another_number() -> list[Patch]:
    def changed(self: Replicas, where: Where, regrouped: int) -> bool:
        return False

    return [*_OFTEN, (Replicas, "_changed", changed)]


def _rows_left_until_the_next_start() -> list[Patch]:
    def ended(self: Eraser) -> None:
        pass

    return [*_OFTEN, (Eraser, "maintenance_ended", ended)]


CANARIES = (
    Canary(
        "partitions-outcome-of-the-ttid",
        "a client looks for the outcome of a transaction in the partition of its ttid only",
        "outcomes: a transaction that was told to be aborted is visible",
        _outcome_of_the_ttid,
        10,
        _OPTIONS,
        first=108,
    ),
    Canary(
        "partitions-undone-at-once",
        "the undo deletes the rows of the new number before the operation is over",
        "processes: a storage node ends, because it has no rows for the partition table",
        _rows_deleted_by_the_undo,
        120,
        _OPTIONS,
        first=12,
    ),
    Canary(
        "partitions-changes-once",
        "changes while the rows are copied, and after it, are made in one table",
        "reads: a revision is older than one that was read before",
        _changes_made_once,
        20,
        _OPTIONS | {"disk": "sqlite"},
    ),
    Canary(
        "partitions-read-by-number",
        "an answer counts though there is another number of partitions by then",
        "iteration: a transaction is missing, or comes twice",
        _partition_of_another_number,
        120,
        _OPTIONS | {"workloads": ("iteration", "counters")},
        first=141,
    ),
    Canary(
        "partitions-rows-left",
        "the rows of the former number are deleted when the node operates again, not when that is over",
        "operations: other rows are not deleted",
        _rows_left_until_the_next_start,
        20,
        _OPTIONS,
    ),
)
