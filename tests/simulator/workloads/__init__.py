"""Workloads of simulated applications. Each module has one or two; a seed composes several."""

from __future__ import annotations

from tests.simulator.workloads.bank import Bank, ResolvingBank
from tests.simulator.workloads.base import Workload
from tests.simulator.workloads.big import Big
from tests.simulator.workloads.blobs import Blobs
from tests.simulator.workloads.cascades import Cascades
from tests.simulator.workloads.counters import Counters
from tests.simulator.workloads.deadlocks import Deadlocks
from tests.simulator.workloads.growth import Growth
from tests.simulator.workloads.iteration import Iteration
from tests.simulator.workloads.pack import Pack
from tests.simulator.workloads.prepared import Prepared
from tests.simulator.workloads.races import Increments, Phases
from tests.simulator.workloads.records import Records
from tests.simulator.workloads.restore import Restore
from tests.simulator.workloads.skew import Skew
from tests.simulator.workloads.undo import Undo
from tests.simulator.workloads.visitors import Visitors

_ALL = (
    *(Bank, Big, Counters, Deadlocks, Growth, Increments, Iteration),
    *(Pack, Phases, Records, Restore, Skew, Undo, Visitors),
    *(Cascades, Prepared, ResolvingBank, Blobs),
)
#: Workloads that were added when many seeds were known: a seed has them besides the others.
LATER = (Cascades.name, ResolvingBank.name, Prepared.name, Blobs.name)
#: Workloads for which storage nodes have folders of contents.
WITH_BLOBS = (Blobs.name,)
WORKLOADS: dict[str, type[Workload]] = {workload.name: workload for workload in _ALL}
