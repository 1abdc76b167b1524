"""The phases of a run."""

from __future__ import annotations

import pytest

from tests.simulator import network
from tests.simulator.alarm import alarmed
from tests.simulator.backup_site import BackupSite
from tests.simulator.run import Options, Run


def test_threads_think_while_a_backup_cluster_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """With very fast links, threads would otherwise commit thousands of times until it runs."""
    monkeypatch.setattr(network, "LATENCY_SECONDS", 0.00002)
    start = BackupSite.start
    events = []

    def counted(site: BackupSite) -> None:
        before = site.cluster.world.events
        start(site)
        events.append(site.cluster.world.events - before)

    monkeypatch.setattr(BackupSite, "start", counted)
    options = Options(
        0.1, ("none",), ("none",), ("none",), ("cascades", "phases"), "memory", 2, 0, True, False, 1
    )
    run = Run(3, options)
    run.think_seconds = 0.001
    with alarmed(run.world):
        run.execute()
    assert len(events) == 1 and 0 < events[0] < 10_000, events
