"""Helpers for tests that add and drop masters."""

from __future__ import annotations

from itertools import count

from neo.protocol.enums import NodeState, NodeType
from neo.protocol.ids import nid_namespace
from neo.protocol.packets import AcceptIdentification, NotifyNodeInformation, RequestIdentification
from tests.support.remote import Remote
from tests.unit.master.masters import Masters

M1 = nid_namespace(NodeType.MASTER) + 1
PORTS = count(1)


def admin(masters: Masters) -> Remote:
    """Return an admin node of the primary."""
    remote = Remote.connect(masters.core(masters.serving()[0]))
    address = ("127.0.0.1", next(PORTS))
    request = RequestIdentification(NodeType.ADMIN, None, address, "test", None, {})
    accepted = remote.ask(request).result()
    assert isinstance(accepted, AcceptIdentification)
    return remote


def states(masters: Masters) -> dict[int, NodeState]:
    """Return the states of all masters, as an admin node sees them."""
    rows = admin(masters).take(NotifyNodeInformation).node_list
    return {row[2] - M1 + 1: row[3] for row in rows if row[0] is NodeType.MASTER and row[2]}
