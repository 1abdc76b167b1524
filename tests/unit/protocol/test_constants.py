"""Ids with a meaning of their own, and the namespaces of node ids."""

from __future__ import annotations

from neo.protocol import ids
from neo.protocol.enums import NodeType


def test_ids_with_a_meaning() -> None:
    """Specification 15.1, 15.3."""
    assert bytes(8) == ids.ZERO_TID == ids.ZERO_OID
    assert b"\xff" * 8 == ids.INVALID_TID == ids.INVALID_OID
    assert b"\x7f\xff\xff\xff\xff\xff\xff\xff" == ids.MAX_TID
    assert bytes(20) == ids.ZERO_HASH
    assert ids.INVALID_PARTITION == 0xFFFFFFFF


def test_each_type_of_nodes_has_its_namespace() -> None:
    """Specification 15.12."""
    first = {kind: ids.nid_namespace(kind) + 1 for kind in NodeType}
    assert first == {
        NodeType.STORAGE: 1,
        NodeType.MASTER: (-0x10 << 24) + 1,
        NodeType.CLIENT: (-0x20 << 24) + 1,
        NodeType.ADMIN: (-0x30 << 24) + 1,
    }
    assert all(-(2**31) <= nid < 2**31 for nid in first.values())
