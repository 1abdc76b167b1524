"""States of contents of blobs in which ``neoctl status`` has an advice, and what operators then do."""

from __future__ import annotations

from tempfile import TemporaryDirectory

from tests.sim.advice import Stage
from tests.sim.writing import BlobWriter
from tests.simulator.zodb_world import simulated_zodb


def with_blob(*shape: int) -> Stage:
    """Bring up a cluster with a blob. The client must not keep a copy of it."""
    stage = Stage(*shape)
    stage.cluster.start()
    with TemporaryDirectory() as folder, simulated_zodb(stage.cluster.threads):
        writer = BlobWriter(stage.cluster, folder)
        writer.wait_commits(1)
        writer.end()
        writer.kill()
    stage.world.run(5.0)
    return stage


def lost_content(copies: int) -> Stage:
    """The file of a content is moved away, or cannot be read, on the first node of two."""
    stage = with_blob(copies, 1, copies - 1)
    volume = stage.cluster.disks[stage.cluster.storages[0].name].contents
    (name,) = volume.contents.now
    stage.moved[name] = volume.contents.now.pop(name)
    if copies > 1:  # the other node cannot help before the problem is seen
        stage.lose(stage.cluster.storages[1])
    stage.neoctl("check")
    stage.world.run(5.0)
    return stage


def without_folder() -> Stage:
    """A node that has no copy of a blob is started without a folder."""
    stage = with_blob(2, 2, 0)
    process = next(
        process
        for process in stage.cluster.storages
        if not stage.cluster.disks[process.name].contents.used
    )
    stage.cluster.disks[process.name].has_folder = False
    process.kill()
    process.start()
    stage.world.run(5.0)
    return stage


def restore_files(stage: Stage) -> None:
    volume = stage.cluster.disks[stage.cluster.storages[0].name].contents
    volume.contents.now.update(stage.moved)


def set_blob_dir(stage: Stage) -> None:
    for process in stage.cluster.storages:
        stage.cluster.disks[process.name].has_folder = True
        process.kill()
    stage.revive()
    stage.world.run(5.0)
