"""Elections of masters on virtual time, with crashes, pauses and cuts."""

from __future__ import annotations

import pytest

from tests.unit.master.masters import Masters

#: A failover takes at most a lease, a suspicion and a decision.
FAILOVER_SECONDS = 4.5


@pytest.fixture
def three() -> Masters:
    return Masters.elected()


def test_three_new_masters_elect_one_of_them(three: Masters) -> None:
    three.run(20)
    assert len(three.serving()) == 1
    assert {core.candidate.log.epochs.epoch for core in three.cores() if core.candidate} == {1}


@pytest.mark.parametrize("count", [2, 3, 5])
def test_a_primary_that_is_killed_is_followed_by_another(count: int) -> None:
    """Specification 19.25."""
    masters = Masters(count)
    masters.start()
    first = masters.until_serving()
    masters.run(3)
    masters.processes[first].kill()
    if count == 2:
        masters.run(20)
        assert masters.serving() == []  # one of two is no majority
        masters.processes[first].start()
        masters.until_serving()
        return
    before = masters.world.now
    second = masters.until_serving(FAILOVER_SECONDS)
    assert second != first
    assert masters.world.now - before > 1.0  # the lease of the first was waited for
    masters.processes[first].start()
    masters.run(10)
    assert masters.serving() == [second]


def test_a_primary_that_is_stopped_serves_no_more_when_it_goes_on(three: Masters) -> None:
    """Specification 19.23."""
    first = three.until_serving()
    three.processes[first].pause()
    three.run(1.0)
    second = three.until_serving(FAILOVER_SECONDS, but=first)
    assert second != first
    three.processes[first].resume()
    three.run(10)
    assert three.serving() == [second]


def test_the_last_of_many_primaries_that_are_stopped_is_replaced_as_soon(three: Masters) -> None:
    for _ in range(21):
        first = three.until_serving()
        three.run(2)
        three.processes[first].pause()
        three.run(1.0)
        three.until_serving(FAILOVER_SECONDS - 1.0, but=first)
        three.processes[first].resume()


def test_a_primary_that_is_cut_off_is_replaced_after_its_lease(three: Masters) -> None:
    first = three.until_serving()
    three.cut(first, *three.others())
    three.run(0.1)
    three.until_serving(FAILOVER_SECONDS, but=first)
    three.run(20)
    three.network.heal()
    three.run(20)
    assert len(three.serving()) == 1
    assert len(three.served) == 2


def test_without_a_majority_no_master_serves(three: Masters) -> None:
    """Specification 19.17."""
    three.cut(0, 1, 2)
    three.cut(1, 2)
    three.run(5)
    assert three.serving() == []
    three.run(30)
    assert three.serving() == []
    three.network.heal()
    three.until_serving(20)


def test_a_cut_between_the_primary_and_one_other_changes_nothing(three: Masters) -> None:
    first = three.until_serving()
    other = (first + 1) % 3
    three.cut(first, other)
    three.run(30)
    assert three.serving() == [first]
    assert len(three.served) == 1


def test_a_primary_that_is_asked_to_end_is_replaced_at_once(three: Masters) -> None:
    """Specification 19.30."""
    first = three.until_serving()
    three.run(3)
    three.processes[first].terminate()
    second = three.until_serving(1.0, but=first)
    assert second != first


def test_a_primary_waits_for_its_resignation_for_a_moment_only(three: Masters) -> None:
    """Specification 19.30: no other master confirms it."""
    (primary,) = three.serving()
    for other in three.others():
        three.processes[other].pause()
    three.processes[primary].terminate()
    assert three.serving() == []
    three.run(1.4)
    assert three.processes[primary].alive
    three.run(0.2)
    assert three.processes[primary].exit_code == 0


def test_a_primary_that_is_restarted_at_once_may_serve_again(three: Masters) -> None:
    first = three.until_serving()
    three.processes[first].kill()
    three.processes[first].start()
    three.until_serving(FAILOVER_SECONDS)
    assert len(three.served) == 2  # in another epoch


def test_a_master_that_lost_its_disk_learns_and_votes_again(three: Masters) -> None:
    primary = three.until_serving()
    lost = (primary + 1) % 3
    three.processes[lost].kill()
    three.platters[lost].wipe()
    three.processes[lost].start()
    three.run(20)
    assert three.serving() == [primary]
    log = three.core(lost).member.log
    assert log is not None and not log.engine.learns
    three.processes[primary].kill()
    three.until_serving(2 * FAILOVER_SECONDS, but=primary)


def test_a_master_that_lost_its_disk_grants_nothing_before_it_knows_the_newest_epoch(
    three: Masters,
) -> None:
    """Specification 19.19."""
    first = three.until_serving()
    three.cut(first, *three.others())
    three.run(1)
    second = three.until_serving(FAILOVER_SECONDS, but=first)
    third = 3 - first - second
    three.run(3)
    three.processes[third].kill()
    three.platters[third].wipe()
    three.cut(second, third)  # no master that knows the second epoch can tell
    three.network.join(f"m{first}", f"m{third}")
    three.processes[third].start()
    three.run(20)  # fails if the first one serves, although it does not know what the second one did
    assert {epoch for epoch, _ in three.served} == {1, 2}
    assert three.serving() == []
    three.network.heal()
    three.until_serving(20)


def test_the_log_begins_when_all_masters_are_there() -> None:
    """Specification 19.7."""
    masters = Masters(3)
    masters.start(0, 1)
    masters.run(20)
    assert masters.serving() == []
    masters.start(2)
    masters.until_serving(10)
    masters.run(5)
    assert all(core.member.log is not None for core in masters.cores())


@pytest.mark.parametrize("seed", range(24))
def test_never_two_primaries_whatever_happens(seed: int) -> None:
    """Specification 19.17, 23.8, 23.13."""
    masters = Masters([3, 3, 5][seed % 3], seed)
    random = masters.world.random
    masters.start()
    masters.until_serving(20)
    for _ in range(25):
        process = random.choice(masters.processes)
        act = random.randrange(6)
        if act == 0 and process.alive:
            process.kill()
        elif act == 1 and process.alive:
            process.pause()
        elif act == 2:
            process.resume()
        elif act == 3:
            one, other = random.sample(range(len(masters.processes)), 2)
            masters.network.cut(f"m{one}", f"m{other}")
        elif act == 4:
            masters.network.heal()
        dead = [p for p in masters.processes if not p.alive]
        if dead and random.random() < 0.5:
            dead[0].start()
        masters.run(random.choice([0.05, 0.5, 3.0]))
    masters.network.heal()
    for process in masters.processes:
        process.resume()
        if not process.alive:
            process.start()
    masters.until_serving(30)
    masters.run(10)
    assert len(masters.serving()) == 1
