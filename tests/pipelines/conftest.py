from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from neo.client import NEOStorage
from tests.pipelines.exporting import copy_into
from tests.pipelines.sample import Sample, fill
from tests.zodb.fleet import Fleet


@pytest.fixture(scope="session", params=["sqlite"])
def fleet(request: pytest.FixtureRequest) -> Iterator[Fleet]:
    with Fleet(3, request.param) as fleet:
        yield fleet


@pytest.fixture
def storage(fleet: Fleet) -> Iterator[NEOStorage]:
    """Of an empty cluster of three storage nodes."""
    fleet.start()
    storage = fleet.storage()
    yield storage
    storage.close()


@pytest.fixture
def sample(storage: NEOStorage) -> Sample:
    """The same with the sample database in it."""
    return fill(storage)


@pytest.fixture
def copied(sample: Sample, tmp_path: Path) -> Path:
    """The sample in a FileStorage, with the same tids."""
    path = tmp_path / "copied.fs"
    copy_into(sample.storage, path)
    return path
