"""Fault sites are for simulations: real processes and real clients never do what they are for."""

from __future__ import annotations

import argparse

import pytest

from neo.client.host.system import System
from neo.net.fault_sites import FaultSite
from neo.node.core import Core
from neo.node.host import Host
from neo.node.node_host import NodeHost
from neo.node.process import Process


def no_core(host: Host) -> Core:
    raise AssertionError("nothing starts here")


@pytest.mark.parametrize("site", FaultSite)
def test_real_processes_and_clients_do_nothing_on_purpose(site: FaultSite) -> None:
    settings = argparse.Namespace(bind=None, http=None, log_slow=None)
    for host in (NodeHost(Process(), settings, no_core), System(1.0)):
        assert [host.fault(site) for _ in range(100)] == [False] * 100
