"""A whole cluster in one process, on virtual time, driven by one seed (docs/architecture.md, *Cores and
hosts*).

Cores of nodes and the real client code run unchanged; this package gives them a clock, a network,
disks and threads that obey a :class:`~tests.simulator.world.World`. Only tests and ``python -m
tests.simulator`` import it.
"""
