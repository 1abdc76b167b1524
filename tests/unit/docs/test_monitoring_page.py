"""docs/monitoring.md lists all figures that nodes expose, with their labels and types, and no others."""

from __future__ import annotations

import re
from pathlib import Path

from neo.admin.metrics import families
from neo.admin.observing import Snapshot
from neo.master.figures import MASTER
from neo.node.figures import COMMON, Figure
from neo.node.metrics import exposition
from neo.storage.figures import STORAGE

PAGE = (Path(__file__).parents[3] / "docs" / "monitoring.md").read_text("utf-8")
NODES: tuple[Figure, ...] = (*COMMON, *STORAGE, *MASTER)
#: Whatever the cluster is, an admin node with a primary master has all its figures.
ADMIN = exposition([], families(Snapshot(primary=-1, last_tid=bytes(7) + b"\1"), "shop")).decode()


def listed() -> dict[str, tuple[str, str]]:
    """Return labels and type of each figure, as the page has them."""
    rows = re.findall(r"^\| `(neo_\w+)` \| (?:`([\w ]*)`)? ?\| (\w+) \|", PAGE, re.MULTILINE)
    found = {name: (labels, kind) for name, labels, kind in rows}
    assert len(found) == len(rows), "no figure is there twice"
    return found


def test_figures_of_nodes_are_in_the_page_as_they_are() -> None:
    page = listed()
    for figure in NODES:
        assert page[figure.name] == (" ".join(sorted(figure.labels)), figure.kind.value)


def test_figures_of_the_admin_node_are_in_the_page() -> None:
    kinds = dict(re.findall(r"^# TYPE (neo_\w+) (\w+)$", ADMIN, re.MULTILINE))
    page = listed()
    assert {name: page[name][1] for name in kinds} == kinds
    assert page.keys() == kinds.keys() | {figure.name for figure in NODES}
