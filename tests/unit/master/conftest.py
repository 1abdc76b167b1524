from __future__ import annotations

import pytest

from tests.unit.master.cluster import MasterWorld


@pytest.fixture
def world() -> MasterWorld:
    return MasterWorld()
