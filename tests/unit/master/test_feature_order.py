"""The master tells its features to nodes that announced maintenance, after its tables."""

from __future__ import annotations

import pytest

from neo.protocol.enums import NodeType
from neo.protocol.packets import FEATURE_MAINTENANCE, FEATURES
from tests.unit.master.cluster import MasterWorld


@pytest.mark.parametrize("feature", [FEATURE_MAINTENANCE, "oids", None])
def test_features_follow_the_tables(feature: str | None) -> None:
    """Specification 21.2, 21.6."""
    world = MasterWorld()
    world.running(1)
    world.extra = {} if feature is None else {FEATURES: [feature]}
    names = world.join(NodeType.ADMIN, port=9005).names()
    tables = ["AcceptIdentification", "NotifyNodeInformation", "SendPartitionTable"]
    expected = [*tables, *["NotifyFeatures"] * (feature == FEATURE_MAINTENANCE)]
    assert [name for name in names if name != "NotifyClusterInformation"] == expected
