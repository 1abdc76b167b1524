"""Oracle: the folder of contents of a storage node and its tables agree (specification 26.8, 26.9)."""

from __future__ import annotations

from neo.protocol.blobs import content_of
from tests.simulator.content_volume import ContentVolume
from tests.simulator.disk_check import Rows
from tests.simulator.world import Violation


def check_contents(tables: Rows, volume: ContentVolume) -> None:
    """Raise Violation unless each record with a reference has its file, and each file a record. Call it
    when no transaction and no transfer is in progress. Contents that a fault took are excused."""
    name = volume.name
    rows = sorted((row[0], row[2], bytes(row[1]).hex()) for row in tables["content"])
    expected = []
    for data_id, _, compression, value in tables["data"]:
        content = None if compression else content_of(value)
        if content is not None:
            expected.append((data_id, content.size, content.checksum.hex()))
    if rows != sorted(expected):
        wrong = sorted(set(rows).symmetric_difference(expected))
        raise Violation(f"{name}: data and content do not have the same references: {wrong[:3]}")
    needed = {checksum for _, _, checksum in rows}
    intact = set(volume.intact())
    if missing := sorted(needed - intact - volume.faulty):
        raise Violation(f"{name}: contents {missing[:3]} have rows, but no file with the right bytes")
    if extra := sorted(set(volume.contents.now) - needed - volume.left):
        raise Violation(f"{name}: no row refers to the files of contents {extra[:3]}")
    if volume.parts.now:
        raise Violation(f"{name}: parts are left: {sorted(volume.parts.now)[:3]}")
