"""The five scenarios of the document, line by line (requirements 25 to 29).

A, B and C are peers 1, 2 and 3. A's process is also the primary, which is the initiator. The operation is
that of the document: create a volume.
"""

from __future__ import annotations

from neo.operations.engine import DONE
from neo.operations.model import State
from tests.unit.operations.world import FakePeer, World, step

A, B, C = 1, 2, 3


def volume(world: World, seconds: float = 1000.0) -> int:
    """Begin the operation of the example; return its id."""
    world.settle(1)
    world.begin(
        step("check brick path", [A, B, C], undo=False),
        step("create brick xattrs", [A, B, C]),
        step("create and store brickinfo", [A, B, C]),
        step("create and store volinfo", [A], synchronised=True),
        locks=("Vol/vol1",),
        seconds=seconds,
    )
    while not world.answers:
        world.events()[0]()
    ((id, why),) = world.answers
    assert why == ""
    return id


def run_until(world: World, *peers: int, done: int) -> None:
    """Let everything happen at these peers, until each has executed so many steps."""
    for _ in range(1000):
        if all(len(executed(world.peers[peer])) >= done for peer in peers):
            return
        world.events(peers)[0]()
    raise AssertionError([world.peers[peer].history for peer in peers])


def executed(peer: FakePeer) -> list[int]:
    """The steps that are done, durably."""
    (_, journal), *_ = [*peer.journal.durable.values(), (b"", {})]
    return [each.step for each in journal.values() if each.state == DONE]


def ran(peer: FakePeer) -> list[str]:
    return [line for line in peer.history if line.startswith("run")]


def undone(peer: FakePeer) -> list[str]:
    return [line for line in peer.history if line.startswith("undo")]


def a_dies(world: World) -> None:
    """The process of A dies: a peer, and the primary."""
    world.peers[A].crash()
    world.elect()


def test_all_peers_are_alive_25() -> None:
    world = World()
    id = volume(world)
    assert world.initiator.holder(("Vol/vol1",)) is not None
    world.settle()
    a, b, c = (world.peers[n] for n in (A, B, C))
    assert ran(a) == ["run 0", "run 1", "run 2", "run 3"]
    assert ran(b) == ran(c) == ["run 0", "run 1", "run 2"]
    # B and C skip step 4, and mark themselves as succeeded.
    for peer in (b, c):
        assert peer.history[-2:] == ["DONE 3", "SUCCEEDED 0"]
    assert id in world.reported
    world.check()


def test_the_initiator_dies_and_is_back_in_time_26() -> None:
    world = World()
    id = volume(world)
    run_until(world, B, C, done=3)
    a_dies(world)
    # B and C wait for all peers to complete step 3.
    assert "run 3" not in ran(world.peers[B]) + ran(world.peers[C])
    # A restarts, and does not resume: it was the initiator.
    world.peers[A].start()
    world.settle(1)
    # The clean-up leader marks the operation as failed; not all peers have.
    world.settle()
    assert undone(world.peers[B]) == undone(world.peers[C]) == ["undo 2", "undo 1"]
    found = world.namespace.find(id)
    assert found is not None and found.state is State.FAILED
    assert found.why == "the primary that began it is gone"
    world.check()


def test_a_primary_that_is_one_again_without_an_election_forgets_who_asked() -> None:
    """Specification 27.30. It has the number that it had, and the locks would be held for ever."""
    world = World()
    world.begin(step("one", [1]))
    (lock,) = world.posted
    world.elect()
    world.term -= 1
    world.initiator._number = world.term
    world.posted.append(lock)
    world.apply()
    world.settle()
    (ended,) = world.namespace.ended
    assert (ended.state, ended.why) == (State.FAILED, "the primary that began it is gone")
    world.begin(step("one", [1]))
    world.settle()
    assert world.answers[-1][1] == ""


def test_the_initiator_dies_and_is_back_after_the_clean_up_timer_27() -> None:
    world = World()
    id = volume(world)
    run_until(world, A, B, C, done=2)
    a_dies(world)
    world.settle(4)
    # B and C are rolled back, and A is waited for.
    assert undone(world.peers[B])[-1] == undone(world.peers[C])[-1] == "undo 1"
    assert world.namespace.pending[id].state is State.ROLLING_BACK
    assert world.namespace.pending[id].settled == {B, C}
    assert world.initiator.holder(("Vol/vol1",)) is not None
    # A restarts, rolls back, and the operation is deleted.
    world.peers[A].start()
    world.settle()
    assert undone(world.peers[A])[-1] == "undo 1"
    assert id not in world.namespace.pending
    world.check()


def test_an_executor_dies_and_is_back_in_time_28() -> None:
    world = World()
    id = volume(world)
    run_until(world, A, B, C, done=2)
    world.peers[C].crash()
    world.settle(3)
    assert executed(world.peers[A]) == executed(world.peers[B]) == [0, 1, 2]
    assert "run 3" not in ran(world.peers[A])
    # C resumes with step 3, and the wait of the others ends.
    world.peers[C].start()
    world.settle()
    assert ran(world.peers[C]).count("run 1") == 1
    assert ran(world.peers[A])[-1] == "run 3"
    assert id in world.reported
    world.check()


def test_an_executor_dies_and_is_back_too_late_29() -> None:
    world = World()
    id = volume(world, seconds=10)
    run_until(world, A, B, C, done=2)
    world.peers[C].crash()
    world.settle(20)
    # The timer marked it as failed; A and B are rolled back, and C is waited for.
    pending = world.namespace.pending[id]
    assert pending.state is State.ROLLING_BACK and pending.why == "it was not over in time"
    assert pending.settled == {A, B}
    world.peers[C].start()
    world.settle()
    assert undone(world.peers[C])[-1] == "undo 1"
    found = world.namespace.find(id)
    assert found is not None and found.state is State.FAILED
    world.check()
