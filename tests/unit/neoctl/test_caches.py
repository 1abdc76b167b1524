"""Caches of clients (specification 17.65)."""

from __future__ import annotations

from neo.protocol.enums import NodeType
from neo.protocol.ids import nid_namespace
from neo.protocol.packets import AnswerClientCaches, AskClientCaches
from tests.unit.neoctl.conftest import Make

C1, C2 = (nid_namespace(NodeType.CLIENT) + number for number in (1, 2))


def test_caches_are_printed(console: Make) -> None:
    rows = [(C1, "web1:77", 20_000_000, 15_500_000, 1200, 900, 100), (C2, "job:5", 0, 0, 0, 0, 0)]
    ctl = console({AskClientCaches: AnswerClientCaches(rows)})
    assert ctl.lines("print", "caches") == [
        "C1 | web1:77 | 15.5 MB of 20.0 MB, 1,200 revisions | 90.0% of 1,000 loads",
        "C2 | job:5 | 0 bytes of 0 bytes, 0 revisions | no loads",
    ]
    assert ctl.data("print", "caches")["caches"][0] == {
        "nid": "C1",
        "name": "web1:77",
        "capacity": 20_000_000,
        "bytes": 15_500_000,
        "entries": 1200,
        "hits": 900,
        "misses": 100,
    }


def test_a_cluster_without_clients_tells_none(console: Make) -> None:
    assert console().lines("print", "caches") == ["No client tells its cache."]
