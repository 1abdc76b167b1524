"""Fault sites are for simulations: real processes and real clients never do what they are for."""

from __future__ import annotations

import argparse

import pytest

from neo.client.host.system import System
from neo.net.fault_sites import FaultSite
from neo.node.core import Core
from neo.node.host import Host
from neo.node.process import ProcessHost


def no_core(host: Host) -> Core:
    raise AssertionError("nothing starts here")


@pytest.mark.parametrize("site", FaultSite)
def test_real_processes_and_clients_do_nothing_on_purpose(site: FaultSite) -> None:
    for host in (ProcessHost(argparse.Namespace(bind=None), no_core), System(1.0)):
        assert [host.fault(site) for _ in range(100)] == [False] * 100
