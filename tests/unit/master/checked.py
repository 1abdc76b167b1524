"""A cluster whose copies are compared."""

from __future__ import annotations

from typing import Any

from neo.protocol.packets import (
    FEATURE_OURS,
    FEATURES,
    AskCheckReport,
    CheckPartition,
)
from tests.unit.master.cluster import MasterWorld, tid


class Served(MasterWorld):
    """Storage nodes that report the end of comparisons, each with all partitions."""

    extra = {FEATURES: [FEATURE_OURS]}

    def __init__(self, count: int = 2, **settings: Any) -> None:
        super().__init__(replicas=count - 1, **settings)
        self.storages = self.running(count)
        self.master.cluster.last_tid = tid(100)

    def do(self, message: Any) -> str:
        return str(self.admin().ask(message).result().message)

    def findings(self) -> dict[int, str]:
        report = self.admin().ask(AskCheckReport()).result()
        return {partition: finding for partition, _, finding, _ in report.row_list}

    def asked(self) -> list[tuple[int, CheckPartition]]:
        """Return (node, question) of all checks that were sent."""
        return [
            (nid, message)
            for nid, storage in enumerate(self.storages, 1)
            for message in storage.received
            if isinstance(message, CheckPartition)
        ]
