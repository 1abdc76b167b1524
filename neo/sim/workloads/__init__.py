"""What simulated applications do. Each module is one workload or two; a seed composes several."""

from __future__ import annotations

from neo.sim.workloads.bank import Bank, ResolvingBank
from neo.sim.workloads.base import Workload
from neo.sim.workloads.big import Big
from neo.sim.workloads.cascades import Cascades
from neo.sim.workloads.counters import Counters
from neo.sim.workloads.deadlocks import Deadlocks
from neo.sim.workloads.growth import Growth
from neo.sim.workloads.iteration import Iteration
from neo.sim.workloads.pack import Pack
from neo.sim.workloads.races import Increments, Phases
from neo.sim.workloads.records import Records
from neo.sim.workloads.restore import Restore
from neo.sim.workloads.skew import Skew
from neo.sim.workloads.undo import Undo
from neo.sim.workloads.visitors import Visitors

_ALL = (
    *(Bank, Big, Counters, Deadlocks, Growth, Increments, Iteration),
    *(Pack, Phases, Records, Restore, Skew, Undo, Visitors),
    *(Cascades, ResolvingBank),
)
#: Those that came when many seeds were known: a seed has them besides the others.
LATER = (Cascades.name, ResolvingBank.name)
WORKLOADS: dict[str, type[Workload]] = {workload.name: workload for workload in _ALL}
