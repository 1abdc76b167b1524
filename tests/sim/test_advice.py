"""Every advice of ``neoctl status`` can be followed in the state in which it is given.

Each scene brings a simulated cluster into a state, finds the advice, follows it literally, and waits
until the problem is gone. A test reads the program to find an advice that no scene follows.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from ZODB.Connection import TransactionMetaData
from ZODB.POSException import ConflictError

from neo.admin.problems import BLOCKING_SECONDS, PREPARED_SECONDS
from neo.master.maintenance.reports import SILENT_ADVICE
from neo.master.settings import SyncPolicy
from neo.net.connection import Connection
from neo.protocol.enums import CellState, ClusterState, ErrorCode
from neo.protocol.ids import MAX_TID, ZERO_OID, ZERO_TID, p64
from neo.protocol.packets import Error
from neo.storage.node import StorageNode
from tests.sim import condition_scenes, operation_scenes
from tests.sim.advice import CHOICE, Stage, steps, write
from tests.sim.backup_scenes import (
    behind,
    never_reached,
    not_configured,
    refused,
    switched_off,
    sync_backup_lost,
    upstream_and_copy_lost,
    upstream_lost,
    upstream_silent,
)
from tests.sim.content_scenes import lost_content, restore_files, set_blob_dir, without_folder
from tests.sim.master_scenes import learning, masters, nameless, pending_master
from tests.simulator.clients import ClientProcess
from tests.simulator.cluster import CLUSTER_NAME
from tests.simulator.network import End
from tests.simulator.process import Process

ROOT = Path(__file__).parents[2]


class Scene(NamedTuple):
    """``advice``: the text of the program, with ``…`` for variable text. ``otherwise``: the scene
    follows the part for the case that is named with 'if', not the rest."""

    advice: str
    make: Callable[[], Stage]
    otherwise: bool = False


# -- states ------------------------------------------------------------------------------------------


def new() -> Stage:
    stage = Stage(2, 4)
    stage.start(stage.cluster.storages[1])
    stage.until(lambda: stage.answered(1), "S1 is there")
    stage.wait(ClusterState.RECOVERING)
    return stage


def served(*shape: int) -> Stage:
    stage = Stage(*shape)
    stage.cluster.start()
    return stage


def emptied() -> Stage:
    """The only disk is not mounted. The master knows that a database existed; the admin node is new."""
    stage = served(1, 4)
    (mount,) = stage.cluster.mounts
    stage.cluster.admin.kill()
    stage.cluster.admin.start()
    mount.process.kill()
    mount.unmount()
    stage.world.run(1.0)
    mount.process.start()
    stage.world.run(5.0)
    return stage


def without_copy() -> Stage:
    stage = served(2, 4)
    return stage.lose(stage.cluster.storages[1])


def after_restart() -> Stage:
    """There are copies, but the master does not know whether they are the newest."""
    stage = served(2, 4, 1)
    stage.cluster.storages[1].kill()
    return stage.restart_master()


def one_down() -> Stage:
    stage = served(2, 4, 1)
    return stage.lose(stage.cluster.storages[1])


def two_down() -> Stage:
    stage = served(3, 4, 2)
    return stage.lose(*stage.cluster.storages[1:])


def too_few() -> Stage:
    stage = Stage(2, 4).begin(1)
    stage.neoctl("set replicas 1")
    return stage


def without_copies() -> Stage:
    return served(2, 4)


def not_spread() -> Stage:
    stage = served(2, 4)
    stage.neoctl("set replicas 1")
    return stage


def copying() -> Stage:
    """Replication cannot go on before the network is repaired."""
    stage = served(2, 4, 1)
    one, two = stage.cluster.storages
    stage.lose(two)
    stage.cut(one, two)
    stage.cut(two, one)
    two.start()
    stage.world.run(3.0)
    return stage


def corrupted(lost: bool = False) -> Stage:
    stage = served(2, 4, 1)
    master = stage.cluster.master_core
    assert master is not None
    stage.cluster.damaged.add(0)
    change = [(0, 2, CellState.CORRUPTED)]
    stage.cluster.master.do(lambda: master.cluster.change_partitions(change))
    stage.world.run(1.0)
    (process,) = [p for p in stage.cluster.storages if nid(p) == 2]
    return stage.lose(process) if lost else stage


def nid(process: Process) -> int | None:
    core = process.core
    return core.cluster.nid if isinstance(core, StorageNode) else None


def verifying() -> Stage:
    """A storage node stands still during verification."""
    stage = served(1, 4)
    stage.cluster.masters.restart()
    stage.wait(ClusterState.VERIFYING)
    stage.cluster.storages[0].pause()
    stage.world.run(1.0)
    return stage


def not_told_yet() -> Stage:
    """The admin node is connected, and the answers to its questions have not arrived yet."""
    stage = served(1, 4)
    admin, master = stage.cluster.admin, stage.cluster.master
    admin.kill()
    admin.start()
    stage.until(lambda: stage.primary is not None, "a primary master")
    assert stage.state is None
    stage.cut(master, admin)
    stage.admin.before_primary = stage.cluster.network.heal
    return stage


def waits_for_database() -> Stage:
    """A process tells each peer that connects what it waits for, as neo.node.process does."""
    stage = one_down()
    process = stage.cluster.storages[1]
    stage.cluster.network.listeners[process.address] = Waiting(process.host)
    return stage


class Waiting:
    def __init__(self, host: str) -> None:
        self.host = host

    def accepted(self, end: End) -> None:
        connection = Connection(server=True)
        connection.answer(None, Error(ErrorCode.NOT_READY.value, "the database is away"))
        end.write(connection.take_outgoing())
        end.receiver = Closing(end)


class Closing:
    def __init__(self, end: End) -> None:
        self.end = end

    def received(self, data: bytes) -> None:
        self.end.close()

    def lost(self, reason: str) -> None:
        pass


def cut_off() -> Stage:
    stage = served(2, 4, 1)
    storage, master = stage.cluster.storages[1], stage.cluster.master
    stage.cut(storage, master)
    stage.cut(master, storage)
    for end in stage.cluster.network.connections:
        if {end.host, end.other.host} == {storage.host, master.host}:
            end.sever()
    stage.world.run(2.0)
    return stage


# -- checks ------------------------------------------------------------------------------------------


def damage(stage: Stage, process: Process) -> None:
    """Delete all rows of partition 0 but the last on one node: it is not behind the others."""
    core = process.core
    assert isinstance(core, StorageNode)
    backend = core.database.backend

    def lose() -> None:
        rows = list(backend.replication.objects_ascending(0, ZERO_TID, ZERO_OID, MAX_TID, 100))
        assert len(rows) > 1
        backend.replication.delete_objects(rows[:-1])

    process.do(lose)
    stage.cluster.damaged.add(0)
    stage.world.run(2.0)


def differing() -> Stage:
    stage = served(2, 1, 1)
    write(stage, "own")
    damage(stage, stage.cluster.storages[1])
    stage.neoctl("check")
    stage.world.run(5.0)
    return stage


def differing_from_upstream() -> Stage:
    stage = Stage(1, 1, backup=True)
    write(stage, "upstream")
    master = stage.cluster.master_core
    assert master is not None and stage.up is not None
    stage.until(lambda: master.backup.active and master.cluster.last_tid > ZERO_TID, "it follows")
    stage.world.run(5.0)
    damage(stage, stage.cluster.storages[0])
    stage.neoctl("check")
    stage.world.run(5.0)
    return stage


def went_back() -> Stage:
    """All nodes start again, and the disk of one storage node is an old copy."""
    stage = served(2, 1, 1)
    write(stage, "own")
    mount = stage.cluster.mounts[1]
    restore = mount.disk.snapshot()
    write(stage, "own")
    processes = [*stage.cluster.storages, *stage.cluster.masters.processes]
    for process in processes:
        process.kill()
    restore()
    for process in processes:
        process.start()
    stage.world.run(10.0)
    stage.wait(ClusterState.RUNNING)
    return stage


# -- transactions that make others wait --------------------------------------------------------------


def blocked(count: int = 1, *, finish: bool = False) -> Stage:
    """``count`` transactions stand still after the vote, and another transaction waits for each.
    ``finish``: they are being finished, but a storage node stands still."""
    stage = served(2, 4, 1)

    def store(process: ClientProcess, oid: bytes, holds: bool) -> None:
        storage = stage.cluster.storage(process, wait_timeout=30.0)
        transaction = TransactionMetaData()
        storage.tpc_begin(transaction)
        try:
            storage.store(oid, ZERO_TID, b"x", "", transaction)
            storage.tpc_vote(transaction)
        except ConflictError:
            storage.tpc_abort(transaction)
            return
        if holds:
            storage._session.host.sleep(6.0 if finish else 1000.0)
            storage.tpc_finish(transaction)

    for holds in (True, False):
        for number in range(count):
            process = stage.cluster.client()
            process.spawn(partial(store, process, p64(number + 1), holds), f"client {number}")
        stage.world.run(2.0)
    if finish:
        stage.cluster.storages[1].pause()
    stage.world.run(10.0)
    return stage


def undecided(*, wanted: bool) -> Stage:
    """A client prepared a transaction and stopped, long ago. ``wanted``: another one waits for it."""
    stage = served(2, 4, 1)

    def store(process: ClientProcess, prepares: bool) -> None:
        storage = stage.cluster.storage(process, wait_timeout=30.0)
        transaction = TransactionMetaData()
        storage.tpc_begin(transaction)
        try:
            storage.store(p64(1), ZERO_TID, b"x", "", transaction)
            storage.tpc_vote(transaction)
            storage.tpc_prepare(transaction, b"lost")
        except ConflictError:
            assert not prepares
            storage.tpc_abort(transaction)
            store(process, prepares)

    process = stage.cluster.client()
    process.spawn(partial(store, process, True), "prepares")
    stage.world.run(2.0)
    process.kill()
    stage.world.run(5.0 if wanted else PREPARED_SECONDS)
    if wanted:
        process = stage.cluster.client()
        process.spawn(partial(store, process, False), "wants it")
        stage.world.run(BLOCKING_SECONDS + 0.5)
    return stage


WAITED_FOR = "start neostorage there; if it is lost for ever: neoctl abort …"
LOST_STORAGE = "start neostorage there; if it is lost for ever: neoctl drop …"
TAKES_PLACE = (
    "start …, wait until all is copied, then neoctl add …; if … is lost for ever: neoctl replace … …"
)
REPLACED = "start neostorage there; if it is lost for ever: neoctl replace … …"
LOST_MASTER = "start neomaster there; if it is lost for ever: neoctl drop …"
LOST_COPIES = (
    "start them; see their logs; if they are lost for ever, and with them what they alone have: "
    "neoctl start"
)
LOST_UPSTREAM = (
    "start the upstream cluster, or mend the network between the two; if that cluster is lost for ever: "
    "neoctl set cluster stopping_backup"
)
NOT_CONFIGURED = (
    "set it and start the masters again; if it is to be a standby no more: "
    "neoctl set cluster stopping_backup"
)
SYNC_STOPS = (
    "start that standby, or mend the network between the two; its neoctl status says what else is wrong;"
    " if applications cannot wait: neoctl set sync … off"
)
SYNC_GOES_ON = (
    "start that standby, or mend the network between the two; its neoctl status says what else is wrong;"
    " then wait until it is in sync"
)
NOT_IN_SYNC = (
    "mend what the reason names; if this standby is only behind: wait until it has caught up"
)
LOST_CONTENTS = (
    "nothing, they are copied from other nodes that have them; suspect its disk; if they stay lost:"
    " restore their files, which its log names; then: neoctl check"
)
DIFFER = "… differ: name the one to believe: neoctl check …:NODE"
DIFFER_UPSTREAM = (
    "… differ from the upstream cluster: check that one, too; if it is right: neoctl repair …:…"
)
UNDECIDED = (
    "run neoresolve with all databases that take part; if the coordinator is lost for ever, and no other"
    " database has committed it: neoctl rollback …"
)
WAIT_VOTES = "start the others, and wait until they vote"

SCENES = [
    Scene("when all storage nodes are there: neoctl start", new),
    Scene("start the storage nodes that have its data; see their logs", emptied),
    Scene("start them; see their logs", without_copy),
    Scene("start neostorage there", without_copy),
    Scene(LOST_COPIES, after_restart),
    Scene(LOST_COPIES, after_restart, otherwise=True),
    Scene("ask again", verifying),
    Scene("ask again", not_told_yet),
    Scene(f"{LOST_STORAGE}, then neoctl tweak", one_down),
    Scene(f"{LOST_STORAGE}, then neoctl tweak", one_down, otherwise=True),
    Scene(REPLACED, operation_scenes.spare_and_down),
    Scene(REPLACED, operation_scenes.spare_and_down, otherwise=True),
    Scene(LOST_STORAGE, two_down),
    Scene(LOST_STORAGE, two_down, otherwise=True),
    Scene("mend that: the node comes back by itself", waits_for_database),
    Scene("its log says why; look at the network to the master", cut_off),
    Scene("neoctl add …", operation_scenes.spare),
    Scene(TAKES_PLACE, operation_scenes.spare_and_down),
    Scene(TAKES_PLACE, operation_scenes.spare_and_down, otherwise=True),
    Scene(
        "bring back, or drop, what is down; then: neoctl add …", operation_scenes.spare_and_two_down
    ),
    Scene("wait until all is copied; then: neoctl add …", operation_scenes.spare_and_copying),
    Scene("add storage nodes: neoctl add all", too_few),
    Scene(WAITED_FOR, operation_scenes.moving),
    Scene(WAITED_FOR, operation_scenes.moving, otherwise=True),
    Scene(LOST_STORAGE, operation_scenes.undoing),
    Scene(LOST_STORAGE, operation_scenes.undoing, otherwise=True),
    Scene(operation_scenes.MEND, operation_scenes.not_undone),
    Scene(operation_scenes.MEND, operation_scenes.not_undone, otherwise=True),
    Scene("bring back, or drop, what is down; then: neoctl tweak", one_down),
    Scene("start …, or replace it: neoctl replace … …", operation_scenes.spare_and_down),
    Scene("neoctl tweak; then wait until all is copied", not_spread),
    Scene("neoctl set replicas 1; neoctl tweak", without_copies),
    Scene("nothing, it takes a while", copying),
    Scene("copy them anew: neoctl repair :…; suspect its disk", corrupted),
    Scene("start it, then: neoctl repair :…; suspect its disk", lambda: corrupted(lost=True)),
    Scene(DIFFER, differing),
    Scene(DIFFER_UPSTREAM, differing_from_upstream, otherwise=True),
    Scene("the log of the master says why; start the upstream cluster", never_reached),
    Scene(LOST_UPSTREAM, never_reached),
    Scene(LOST_UPSTREAM, never_reached, otherwise=True),
    Scene(LOST_UPSTREAM, upstream_lost),
    Scene(LOST_UPSTREAM, upstream_lost, otherwise=True),
    Scene(LOST_UPSTREAM, upstream_silent),
    Scene(LOST_UPSTREAM, upstream_silent, otherwise=True),
    Scene(
        "start the upstream cluster, or mend the network between the two", upstream_and_copy_lost
    ),
    Scene(NOT_CONFIGURED, not_configured),
    Scene(NOT_CONFIGURED, not_configured, otherwise=True),
    Scene(SYNC_STOPS, lambda: sync_backup_lost(SyncPolicy.STOP)),
    Scene(SYNC_STOPS, lambda: sync_backup_lost(SyncPolicy.STOP), otherwise=True),
    Scene(SYNC_GOES_ON, lambda: sync_backup_lost(SyncPolicy.CONTINUE)),
    Scene("neoctl set sync … on", switched_off),
    Scene(NOT_IN_SYNC, refused),
    Scene(NOT_IN_SYNC, behind, otherwise=True),
    Scene("start neomaster there", nameless),
    Scene(LOST_MASTER, lambda: masters(3, 1)),
    Scene(LOST_MASTER, lambda: masters(3, 1), otherwise=True),
    Scene("start …; if … is lost for ever: neoctl drop …", lambda: masters(3, 1)),
    Scene("start …; if … is lost for ever: neoctl drop …", lambda: masters(3, 1), otherwise=True),
    Scene("neoctl add …", lambda: pending_master(0)),
    Scene("start the other masters; then: neoctl add …", lambda: pending_master(1)),
    Scene(
        "neoctl print check; suspect the disks of the nodes that it names; wait until all is copied;"
        " neoctl check",
        went_back,
    ),
    Scene("let that client go on, or abort its transaction: neoctl end …", blocked),
    Scene("neoctl print transactions", lambda: blocked(6)),
    Scene(
        "it will be committed: look for a storage node that is stopped or slow",
        lambda: blocked(finish=True),
    ),
    Scene(UNDECIDED, lambda: undecided(wanted=False)),
    Scene(UNDECIDED, lambda: undecided(wanted=False), otherwise=True),
    Scene(LOST_CONTENTS, lambda: lost_content(2)),
    Scene(LOST_CONTENTS, lambda: lost_content(1), otherwise=True),
    Scene("set its blob_dir and start it again", without_folder),
    *(Scene(advice, make) for advice, make in condition_scenes.SCENES),
    Scene(SILENT_ADVICE, condition_scenes.silent, otherwise=True),
    Scene("nothing, unless it stays so", learning),
    Scene(WAIT_VOTES, learning),
]


# -- what the words mean -----------------------------------------------------------------------------


def nothing(stage: Stage) -> None:
    """Do nothing: the advice is to wait, or only says where to look."""


def revive(stage: Stage) -> None:
    for cluster in (stage.cluster, stage.up):
        for process in cluster.servers if cluster else ():
            process.resume()
    stage.revive()
    stage.world.run(5.0)


def heal(stage: Stage) -> None:
    stage.cluster.network.heal()


def remount(stage: Stage) -> None:
    for mount in stage.cluster.mounts:
        mount.process.kill()
        mount.remount()
        mount.process.start()


def configure(stage: Stage) -> None:
    stage.cluster.upstream = stage.up
    stage.restart_master()


def mend(stage: Stage) -> None:
    process = stage.cluster.storages[1]
    del stage.cluster.network.listeners[process.address]
    process.start()


def add_storages(stage: Stage) -> None:
    while stage.spare:
        stage.spare.pop().start()
    stage.world.run(2.0)


def copied(stage: Stage) -> None:
    heal(stage)
    stage.until(stage.whole, "all is copied")


def wait(stage: Stage) -> None:
    heal(stage)
    for process in stage.cluster.servers:
        process.resume()
    stage.world.run(5.0)


def wait_in_sync(stage: Stage) -> None:
    stage.until(lambda: stage.sync_state() == "sync", "it is in sync")


def switch_on(stage: Stage) -> None:
    """Do what the reason says: the operator of the upstream cluster switched the backup off."""
    stage.go_upstream()
    stage.neoctl(f"set sync {CLUSTER_NAME} on")
    stage.go_upstream()


def catch_up(stage: Stage) -> None:
    heal(stage)
    wait_in_sync(stage)


def resolve(stage: Stage) -> None:
    """Do what the resolver does about a transaction that its coordinator does not know."""
    for row in stage.neoctl("print prepared").data["prepared"]:
        stage.neoctl(f"rollback {row['xid']}")


#: Words of the advice that are no commands of neoctl.
WORDS: dict[str, Callable[[Stage], None]] = {
    "start neostorage there": revive,
    "start neomaster there": revive,
    "start them": revive,
    "start it": revive,
    "start the others": wait,  # they run already, and learn the log
    "start the other masters": revive,
    "start the upstream cluster": revive,
    "start the storage nodes that have its data": remount,
    "bring back": revive,
    "drop": nothing,
    "what is down": nothing,
    "see their logs": nothing,
    "its log says why": nothing,
    "the log of the master says why": nothing,
    "suspect its disk": nothing,
    "suspect the disks of the nodes that it names": nothing,
    "let that client go on": nothing,
    "abort its transaction": nothing,  # by the command that follows
    "it will be committed": nothing,
    "replace it": nothing,
    "look for a storage node that is stopped or slow": wait,
    "copy them anew": nothing,
    "when all storage nodes are there": nothing,
    "look at the network to the master": heal,
    "mend the network between the two": heal,
    "mend that": mend,
    "the node comes back by itself": nothing,
    "start that standby": revive,
    "its neoctl status says what else is wrong": nothing,
    "wait until it is in sync": wait_in_sync,
    **condition_scenes.WORDS,
    "mend what it says": operation_scenes.mend_step,
    "mend what the reason names": switch_on,
    "wait until it has caught up": catch_up,
    "set it and start the masters again": configure,
    "add storage nodes": add_storages,
    "with them what they alone have": nothing,
    "nothing": nothing,
    "it takes a while": wait,
    "unless it stays so": wait,
    "ask again": wait,
    "wait until they vote": nothing,
    "wait until all is copied": copied,
    "name the one to believe": nothing,
    "they are copied from other nodes that have them": revive,
    "restore their files": restore_files,
    "which its log names": nothing,
    "set its blob_dir and start it again": set_blob_dir,
    "run neoresolve with all databases that take part": resolve,
    "no other database has committed it": nothing,
}


def do(stage: Stage, step: str) -> None:
    if step.startswith("neoctl "):
        stage.neoctl(step.removeprefix("neoctl ").replace(CHOICE, "S1"))
        stage.world.run(1.0)
    elif re.fullmatch(r"start [SM]\d+", step):
        revive(stage)
    elif not re.fullmatch(r"S\d+( differ.*)?", step):  # names the nodes
        WORDS[step](stage)


def test_a_lost_node_and_a_new_one_have_one_advice() -> None:
    """The lines about the node that is down, the one that waits, and the copies name one command."""
    stage = operation_scenes.spare_and_down()
    try:
        commands = [
            re.findall("neoctl (?!add).*", problem["advice"]) for problem in stage.problems()
        ]
        assert commands == [["neoctl replace S2 S3"]] * 3
    finally:
        stage.close()


# -- no advice is left out ---------------------------------------------------------------------------


def templates(expression: ast.expr) -> Iterator[str]:
    """Yield the texts that an expression may give, with ``…`` for variable text."""
    if isinstance(expression, ast.Constant):
        yield str(expression.value)
    elif isinstance(expression, ast.JoinedStr):
        parts = [
            part.value if isinstance(part, ast.Constant) else "…" for part in expression.values
        ]
        yield "".join(map(str, parts))
    elif isinstance(expression, ast.Name) and expression.id == "text":
        yield from findings()
    elif ast.unparse(expression) == "row['advice']":
        yield from condition_scenes.advised()
    else:
        raise AssertionError(f"write the advice where it is given: {ast.unparse(expression)}")


def findings() -> Iterator[str]:
    """Yield the master's advice where it cannot decide between copies."""
    for node in ast.walk(ast.parse((ROOT / "neo/master/maintenance/check.py").read_text())):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("row.text", "text"):
            yield from (text for text in _literals(node.value) if " differ" in text)


def _literals(expression: ast.expr) -> Iterator[str]:
    for node in ast.walk(expression):
        if isinstance(node, ast.JoinedStr):
            yield from templates(node)


def advised() -> set[str]:
    calls = [
        node
        for node in ast.walk(ast.parse((ROOT / "neo/admin/problems.py").read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Problem"
    ]
    return {text for call in calls for text in templates(call.args[2])}


def test_every_advice_is_followed_in_some_scene() -> None:
    """If this fails: write a scene for the new advice, or delete the scene of a removed one."""
    assert advised() == {scene.advice for scene in SCENES}
    with_instead = {scene.advice for scene in SCENES if steps(scene.advice)[1]}
    assert with_instead == {scene.advice for scene in SCENES if scene.otherwise}


@pytest.mark.parametrize(
    "scene",
    SCENES,
    ids=lambda scene: f"{scene.make.__name__}-{scene.advice}{'-otherwise' * scene.otherwise}",
)
def test_advice_is_followed(scene: Scene) -> None:
    stage = scene.make()
    try:
        problem = stage.find(scene.advice)
        first, instead = steps(problem["advice"])
        for step in instead if scene.otherwise else first:
            do(stage, step)
        stage.gone(problem["text"])
    finally:
        stage.close()
