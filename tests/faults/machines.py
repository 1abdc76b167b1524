"""A cluster with each process on a machine of its own (:mod:`tests.faults.network`)."""

from __future__ import annotations

import configparser
from pathlib import Path

from neo.protocol.enums import CellState, ClusterState
from neo.protocol.errors import ErrorAnswer
from neo.protocol.packets import (
    AnswerElection,
    AnswerPartitionList,
    AskElection,
    AskPartitionList,
    SetClusterState,
)
from neo.simple import Cluster
from neo.simple.conf import NodeConf
from neoctl.client import AdminAway
from tests.faults.mixed_load import STOP_SECONDS
from tests.faults.network import Network


class MachineCluster(Cluster):
    """A cluster whose nodes run on machines of the network; the admin node and the test, on the hub."""

    def __init__(self, folder: Path, network: Network, conf: configparser.ConfigParser) -> None:
        """``conf``: the content of neo.conf."""
        self.machines = network.machines
        with open(folder / "neo.conf", "x") as file:
            conf.write(file)
        super().__init__(folder)

    def command(self, node: NodeConf) -> list[str]:
        machine = self.machines.get(node.name)
        return [*(machine.prefix if machine else ()), *super().command(node)]

    def rows(self) -> list[dict[int, CellState]]:
        """Return the partition table. Raise AdminAway, ErrorAnswer while it is not known."""
        with self.admin() as admin:
            answer = admin.ask(AskPartitionList(0, 0, None))
        assert isinstance(answer, AnswerPartitionList)
        return [dict(row) for row in answer.row_list]

    def complete(self) -> bool:
        """Return whether every cell is UP_TO_DATE."""
        try:
            rows = self.rows()
        except (AdminAway, ErrorAnswer):
            return False
        return bool(rows) and all(s is CellState.UP_TO_DATE for row in rows for s in row.values())

    def together(self) -> bool:
        """Return whether the primary reaches all other masters, and they have its log."""
        try:
            with self.admin() as admin:
                answer = admin.ask(AskElection())
        except (AdminAway, ErrorAnswer):
            return False
        assert isinstance(answer, AnswerElection)
        return not any(row[4] for row in answer.master_list)

    def stop_all(self) -> None:
        """Stop the cluster as the operator does: transactions in progress end first, on all nodes
        alike."""
        with self.admin() as admin:
            admin.ask(SetClusterState(ClusterState.STOPPING))
        for name, process in self.processes.items():
            if name != "admin":
                process.wait(STOP_SECONDS)
        self.stop()
