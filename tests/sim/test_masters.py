"""Several masters in a simulated world: their clocks, logs and disks, the oracles, whole runs."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from random import Random
from typing import cast

import pytest

from neo.master.election.epochs import Claim, Forget, Table, encode
from neo.master.election.lease import DRIFT
from neo.master.election.log import LogFailure
from neo.master.primary import PrimaryMaster
from neo.node.peer import Peer
from neo.protocol.enums import ClusterState, NodeType
from neo.transactor.durable import Begun
from neo.transactor.members import first_members
from neo.transactor.messages import Entry, Kind, Sid, Spec, Vote
from tests.simulator.canaries.election import CANARIES
from tests.simulator.clock import SKEW_MAX, Clock
from tests.simulator.cluster import Cluster, Shape
from tests.simulator.leadership import Reigns
from tests.simulator.log_disk import LogPlatter, SimLogDisk
from tests.simulator.log_watch import LogWatch
from tests.simulator.memory_disk import MemoryDisk
from tests.simulator.process import Process
from tests.simulator.run import Options, Run
from tests.simulator.trial import attempt
from tests.simulator.world import Event, Violation, World

GENESIS = first_members([("a", ("host", 1)), ("b", ("host", 2)), ("c", ("host", 3))])


# -- clocks ----------------------------------------------------------------------------------------


def test_two_clocks_differ_by_less_than_the_lease_allows() -> None:
    """Specification 19.22."""
    assert (1 + SKEW_MAX) / (1 - SKEW_MAX) < 1 + DRIFT
    world = World(0)
    clock = Clock(world, Random(0))
    for _ in range(100):
        clock.turn()
        shown = clock.read()
        world.now += 10.0
        assert abs(clock.read() - shown - 10.0) < 10.0 * SKEW_MAX


def test_a_timer_is_never_early_by_its_own_clock() -> None:
    world = World(0)
    clock = Clock(world, Random(1))
    clock.boot()
    rang: list[float] = []
    for _ in range(50):
        start = clock.read()
        clock.call_later(5.0, lambda start=start: rang.append(clock.read() - start), "timer")
        clock.turn()
        world.run(3.0)
        clock.turn()
        world.run(7.0)
    assert len(rang) == 50
    assert all(4.999 < after < 5.2 for after in rang)


def test_a_core_that_waits_for_the_rest_of_a_time_reaches_it() -> None:
    """A timer rings a little early when the sum of floats is rounded down. The rest is then too small
    to change the time of the world."""
    world = World(0)
    world.events_max = 1000
    world.now = 1000.0  # the clock begins at 0, where floats are finer
    clock = Clock(world, Random(3))
    reached: list[float] = []

    def wait_until(due: float) -> None:
        if clock.read() < due:
            clock.call_later(due - clock.read(), lambda: wait_until(due), "timer")
        else:
            reached.append(due)

    for _ in range(100):
        clock.turn()
        wait_until(clock.read() + 1.0)
        world.run(2.0)
    assert len(reached) == 100


def test_a_timer_that_goes_on_can_be_cancelled() -> None:
    world = World(0)
    clock = Clock(world, Random(2))
    rang: list[int] = []
    timers: list[Event] = [clock.call_later(1.0, lambda: rang.append(1), "timer")]
    clock.rate = 0.9  # now slower: the event comes too early, and once more
    world.run(1.05)
    assert not rang
    timers[0].cancel()
    world.run(1.0)
    assert not rang


# -- the disk of a log -------------------------------------------------------------------------------


def spec(number: int, data: bytes = encode(Claim(1, "a", 7))) -> Spec:
    return Spec(Sid(0, number), Kind.DATA, data)


def log_disk(platter: LogPlatter, world: World) -> SimLogDisk:
    return SimLogDisk(platter, lambda seconds, callback: world.call_later(seconds, callback))


def test_a_crash_keeps_what_was_synced_and_some_of_the_rest_of_each_file() -> None:
    kept: set[tuple[int, int]] = set()
    for seed in range(200):
        world = World(seed)
        platter = LogPlatter(Random(seed))
        disk = log_disk(platter, world)
        disk.begin(Begun.FRESH, GENESIS, {})
        disk.append([Entry(1, spec(1)), Vote(2, 0, None, -1)])
        done: list[bool] = []
        disk.sync(lambda done=done: done.append(True))
        disk.append([Entry(2, spec(2)), Vote(3, 0, None, -1)])
        world.run(1.0)
        assert done
        platter.crash()
        durable = platter.durable()
        assert durable is not None and durable.end.tid >= 2
        kept.add((len(platter.entries), len(platter.records)))
    assert kept == {(1, 1), (1, 2), (2, 1), (2, 2)}


def test_a_lost_disk_is_another_one_and_forgetful() -> None:
    platter = LogPlatter(Random(0))
    disk = log_disk(platter, World(0))
    disk.begin(Begun.FRESH, GENESIS, {})
    states = [(platter.forgetful, platter.journal)]
    platter.wipe()
    states.append((platter.forgetful, platter.journal))
    log_disk(platter, World(0)).begin(Begun.RECOVERED, GENESIS, {})
    states.append((platter.forgetful, platter.journal))
    assert [forgetful for forgetful, _ in states] == [False, True, True]
    assert states[0][1] != states[1][1] == states[2][1]


def test_a_list_of_masters_goes_on_with_a_majority_of_those_that_remember() -> None:
    world = World(0)
    masters = Cluster(world, Shape(masters=5), lambda name: MemoryDisk(world, name)).masters
    for process in masters.processes:
        log_disk(masters.platters[process.name], world).begin(Begun.FRESH, GENESIS, {})
    assert masters.spare is not None
    longer = [*masters.processes, masters.spare]
    assert masters.can_go_on(longer)
    for process in masters.processes[:2]:
        masters.platters[process.name].wipe()
    assert masters.can_go_on(masters.processes)
    assert not masters.can_go_on(longer)
    assert not masters.can_go_on(masters.processes[:4])


def test_a_full_disk_takes_nothing_until_it_is_healed() -> None:
    platter = LogPlatter(Random(0))
    disk = log_disk(platter, World(0))
    disk.begin(Begun.FRESH, GENESIS, {})
    platter.full = True
    with pytest.raises(LogFailure, match="no space left"):
        disk.append([Vote(1, 0, None, -1)])
    platter.heal()
    disk.append([Vote(1, 0, None, -1)])


# -- oracles -----------------------------------------------------------------------------------------


def fails(world: World) -> str:
    """Return the error of the world, or an empty text."""
    world.call_later(0, lambda: None)
    try:
        world.step()
    except Violation as e:
        return str(e)
    return ""


def test_logs_that_differ_are_found_even_when_one_was_lost() -> None:
    world = World(0)
    watch = LogWatch(world)
    watch.saw("master1", 1, spec(1))
    watch.saw("master2", 1, spec(1))
    assert not fails(world)
    watch.saw("master3", 1, spec(2))
    assert "master3 has another transaction 1" in fails(world)


def test_the_watch_knows_what_the_log_says() -> None:
    watch = LogWatch(World(0))
    watch.saw("master1", 1, spec(1, encode(Claim(1, "a", 7))))
    watch.saw("master1", 2, spec(2, encode(Table(1, 7, 5, (1,)))))
    assert (watch.epochs.epoch, watch.epochs.ptid, watch.forgotten) == (1, 5, 0)
    watch.saw("master1", 3, spec(3, encode(Forget(1, 7, 5))))
    assert (watch.epochs.ptid, watch.forgotten) == (None, 1)
    members = Spec(Sid(0, 4), Kind.MEMBERS, GENESIS.removed("b").encode())
    watch.saw("master2", 4, members)
    assert watch.members == {"a", "c"}


class Reigning(PrimaryMaster):
    """A core with the attributes that the oracle reads."""

    def __init__(self, epoch: int, ptid: int = 1) -> None:
        self.tenure = Namespace(epoch=epoch)  # type: ignore[assignment]
        self.partitions = Namespace(ptid=ptid)  # type: ignore[assignment]
        self.cluster = Namespace(state=ClusterState.RUNNING)  # type: ignore[assignment]


class Watched:
    def __init__(self) -> None:
        self.world = World(0)
        cluster = Cluster(self.world, Shape(masters=3), lambda name: MemoryDisk(self.world, name))
        self.one, self.two, self.three = cluster.masters.processes
        self.log = LogWatch(self.world)
        self.log.epochs.ptid = 9
        self.reigns = Reigns(self.world, cluster.masters.processes, self.log)

    def act(self, process: Process, primary: PrimaryMaster, to: NodeType = NodeType.CLIENT) -> str:
        self.world.run(1.0)
        peer = cast(Peer, Namespace(core=primary, node=Namespace(type=to)))
        self.reigns.writes(process, peer)
        return fails(self.world)


def test_acts_of_one_primary_after_the_other_are_right() -> None:
    watched = Watched()
    first, second = Reigning(1), Reigning(2)
    assert not watched.act(watched.one, first)
    assert not watched.act(watched.one, first, NodeType.STORAGE)
    assert not watched.act(watched.two, second)


def test_a_primary_that_acts_after_the_next_one_is_found() -> None:
    watched = Watched()
    first, second = Reigning(1), Reigning(2)
    assert not watched.act(watched.one, first)
    assert not watched.act(watched.two, second)
    assert not watched.act(watched.one, first, NodeType.ADMIN)  # an admin node does not count
    assert "in epoch 1, from 1.0000 to 1.0000 acts again" in watched.act(watched.one, first)


def test_an_epoch_with_two_processes_is_found() -> None:
    watched = Watched()
    assert not watched.act(watched.one, Reigning(3))
    assert not watched.act(watched.one, Reigning(3))  # lost its lease, and got it again
    assert "master2 in epoch 3" in watched.act(watched.two, Reigning(3))


def test_an_epoch_before_the_last_is_found() -> None:
    watched = Watched()
    assert not watched.act(watched.one, Reigning(3))
    assert "master1 in epoch 2" in watched.act(watched.one, Reigning(2))


def test_an_older_partition_table_is_found() -> None:
    watched = Watched()
    assert not watched.act(watched.one, Reigning(1, ptid=7))
    assert not watched.act(watched.two, Reigning(2, ptid=7))
    assert "table 6, and 7 was in use" in watched.act(watched.three, Reigning(3, ptid=6))


def test_a_table_that_was_read_by_a_recovery_that_is_stopped_was_not_in_use() -> None:
    watched = Watched()
    first, second = Reigning(1, ptid=7), Reigning(2, ptid=6)
    assert not watched.act(watched.one, first)
    second.cluster.state = ClusterState.RECOVERING
    assert not watched.act(watched.two, second)
    second.cluster.state = ClusterState.STOPPING
    assert not watched.act(watched.two, second)
    second.cluster.state = ClusterState.VERIFYING
    assert "table 6, and 7 was in use" in watched.act(watched.two, second)


def test_a_partition_table_that_the_operator_gave_up_may_be_followed_by_an_older_one() -> None:
    watched = Watched()
    assert not watched.act(watched.one, Reigning(1, ptid=7))
    watched.log.forgotten = 1
    assert not watched.act(watched.two, Reigning(2, ptid=5))


def test_a_partition_table_that_is_not_logged_is_found() -> None:
    watched = Watched()
    assert "table 10, and the log only of 9" in watched.act(watched.one, Reigning(1, ptid=10))


# -- runs --------------------------------------------------------------------------------------------


def test_most_seeds_have_one_master_and_some_have_three_or_five() -> None:
    counts = Counter(len(Run(seed, Options(storages=1)).masters) for seed in range(100))
    assert counts.keys() == {1, 3, 5}
    assert 45 < counts[1] < 75 and counts[5] < counts[3] < counts[1]


@pytest.mark.parametrize("masters", [3, 5])
def test_a_run_with_several_masters_is_right_and_comes_again(masters: int) -> None:
    options = Options(masters=masters, seconds=4.0, workloads=("bank",), storages=2, backup=False)
    trial = attempt(1, options)
    assert trial.result is not None, trial.report(40)
    assert trial.result.commits


def test_there_are_enough_planted_bugs_of_several_masters() -> None:
    assert len(CANARIES) >= 8
    assert all(canary.options["masters"] == 3 for canary in CANARIES)


def test_nobody_is_away_while_a_new_master_may_be_added() -> None:
    """The operator got an error, but a majority may have the new list of members. The new master has to
    learn the log, and a majority with it needs all others."""
    run = Run(1, Options(masters=3, storages=1))
    run.cluster.start()
    process = run.cluster.master
    assert process is not None

    def away() -> int:
        counts = [len(run.master_faults._away(run.cluster)) for _ in range(20)]
        for each in run.cluster.masters.all:
            each.resume()
            each.revive()
        return sum(counts)

    assert away()
    (new,) = set(run.cluster.masters.all) - set(run.cluster.masters.members())
    run.master_faults._wanted[new] = True
    assert not away()
