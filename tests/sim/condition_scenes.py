"""States in which a storage node says what is wrong with it, and what operators then do."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from neo.master.maintenance.reports import SILENT_ADVICE
from neo.storage.conditions import RECENT_SECONDS
from neo.storage.node import StorageNode
from neo.storage.replication.replicator import RETRY_SECONDS, STUCK_ROUNDS
from tests.sim.advice import Stage, write
from tests.sim.content_scenes import lost_content, restore_files, with_blob
from tests.sim.writing import BlobWriter
from tests.simulator.content_volume import ContentVolume, OwnHealth
from tests.simulator.zodb_world import simulated_zodb


def _volume(stage: Stage) -> ContentVolume:
    return stage.cluster.disks[stage.cluster.storages[0].name].contents


def full() -> Stage:
    """The disk of the contents of blobs, which has nothing else, is full."""
    stage = with_blob(1, 1, 0)
    volume = _volume(stage)
    volume.health = volume.own = OwnHealth()
    volume.own.full = True
    return stage


def failed_upload() -> Stage:
    """An upload fails on a full disk. Contents that are not needed are removed then."""
    stage = full()
    core = stage.cluster.storages[0].core
    assert isinstance(core, StorageNode)
    contents = core.blobs.contents
    with TemporaryDirectory() as folder, simulated_zodb(stage.cluster.threads):
        writer = BlobWriter(stage.cluster, folder)
        stage.until(lambda: contents.refused_at is not None, "an upload fails")
        writer.kill()
    return stage


def not_copied() -> Stage:
    """A node that was away does not reach the one from which it would copy."""
    stage = Stage(2, 1, 1)
    stage.cluster.start()
    one, two = stage.cluster.storages
    stage.lose(two)
    write(stage, "own")
    stage.cut(one, two)
    stage.cut(two, one)
    two.start()
    core = two.core
    assert isinstance(core, StorageNode)
    stage.until(lambda: bool(core.replicator.stuck()), f"{STUCK_ROUNDS} rounds failed")
    return stage


def refused_statement() -> Stage:
    """The database refused what a request made of it. No known request does that."""
    stage = Stage(1, 1)
    stage.cluster.start()
    core = stage.cluster.storages[0].core
    assert isinstance(core, StorageNode)
    core.database.refusals.last = "two rows with one key"
    return stage


def silent() -> Stage:
    """A node stands still: its connections stay, and it answers nothing."""
    stage = Stage(2, 4, 1)
    stage.cluster.start()
    stage.cluster.storages[1].pause()
    stage.neoctl("status")  # asks it, and waits in vain
    return stage


def wake(stage: Stage) -> None:
    stage.cluster.storages[1].resume()
    stage.world.run(2.0)


def stop(stage: Stage) -> None:
    stage.lose(stage.cluster.storages[1])


def free_space(stage: Stage) -> None:
    _volume(stage).heal()


def free_space_for_uploads(stage: Stage) -> None:
    free_space(stage)
    stage.world.run(RECENT_SECONDS)


def reconnect(stage: Stage) -> None:
    """Do what the reason says: the other node is not reached."""
    stage.cluster.network.heal()
    stage.world.run(2 * RETRY_SECONDS)


def start_again(stage: Stage) -> None:
    (process,) = stage.cluster.storages
    process.kill()
    process.start()
    stage.world.run(5.0)


def nothing(stage: Stage) -> None:
    """Do nothing: other steps mend it."""


SCENES: list[tuple[str, Callable[[], Stage]]] = [
    ("free space on that disk, or give it a larger one", full),
    ("free space on the disk of its contents of blobs", failed_upload),
    (
        "restore the files of these contents from a backup into its blob_dir; then: neoctl check",
        lambda: lost_content(1),
    ),
    ("mend what it names: the copy is tried again all the time", not_copied),
    (SILENT_ADVICE, silent),
    ("report this, with the log of the node; then start it again", refused_statement),
]

WORDS: dict[str, Callable[[Stage], None]] = {
    "free space on that disk": free_space,
    "give it a larger one": nothing,
    "free space on the disk of its contents of blobs": free_space_for_uploads,
    "restore the files of these contents from a backup into its blob_dir": restore_files,
    "mend what it names": reconnect,
    "the copy is tried again all the time": nothing,
    "report this": nothing,
    "look at its process and its disk": wake,
    "stop the process or the machine": stop,
    "its copies serve": nothing,
    "with the log of the node": nothing,
    "start it again": start_again,
}


def advised() -> Iterator[str]:
    """Yield the advice that storage nodes give: the last one of four, the first of which is a kind. And
    what the master says of a node that is silent."""
    yield SILENT_ADVICE
    module = Path(__file__).parents[2] / "neo/storage/conditions.py"
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Tuple) and len(node.elts) == 4:
            yield str(ast.literal_eval(node.elts[3]))
