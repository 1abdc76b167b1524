"""Requirements 4 to 24 of the document, and the decisions of the design (numbers in the names)."""

from __future__ import annotations

import pytest

from neo.operations.engine import Journaled
from neo.operations.entries import Begin, Clean, End, Fail, Forget, Lock, PeerMark, StepMarks
from neo.operations.initiator import Refused
from neo.operations.model import CONTEXT_MAX, Operation, State, StepMark, encode
from neo.operations.namespace import ENDED_MAX, Namespace
from tests.unit.operations.world import World, step

A, B, C = 1, 2, 3


def begun(world: World, **options: bool | float | tuple[str, ...]) -> int:
    """Begin an operation of two steps; return its id."""
    world.settle(1)
    world.begin(step("first", [A, B]), step("second", [C], synchronised=True), **options)  # type: ignore[arg-type]
    while not world.answers:
        world.events()[0]()
    ((id, why),) = world.answers
    assert why == ""
    return id


def outcome(world: World, id: int) -> State:
    found = world.namespace.find(id)
    assert found is not None
    return found.state


# -- beginning -----------------------------------------------------------------------------------


def test_all_peers_must_be_online_4() -> None:
    world = World()
    world.settle(1)
    world.peers[C].crash()
    world.begin(step("only", [A, C]))
    world.settle()
    ((id, why),) = world.answers
    assert why == "P3 is away" and outcome(world, id) is State.FAILED
    assert world.initiator.holder(("lock",)) is None


def test_two_operations_with_a_common_lock_do_not_overlap_10() -> None:
    """Specification 27.8; the refusal names the holder (decision 1.2-12)."""
    world = World()
    id = begun(world, locks=("history", "table"))
    with pytest.raises(Refused, match=f"operation {id} \\(test\\) holds 'table'"):
        world.begin(step("other", [A]), locks=("nodes", "table"))


def test_operations_without_a_common_lock_interleave_1_2_10() -> None:
    world = World()
    first = begun(world, locks=("history",))
    world.answers.clear()
    world.begin(step("other", [A]), locks=("nodes",))
    world.settle()
    assert {first, world.answers[0][0]} <= world.reported
    world.check()


def test_a_lock_that_another_primary_was_faster_to_take_is_busy_24() -> None:
    world = World()
    world.settle(1)
    world.begin(step("slow", [A]))
    world.posted.appendleft(world.posted[0])  # somebody else's, with the same lock
    world.namespace.apply(Lock(1, 9, ("lock",)))
    world.settle()
    assert world.answers[0][1].startswith("operation 1 holds 'lock'")


def test_what_the_steps_need_is_looked_at_when_the_locks_are_held_14() -> None:
    world = World()
    world.settle(1)

    def make(id: int) -> Operation:
        assert world.initiator.holder(("table",)) is not None
        raise Refused("the table has changed")

    world.initiator.begin(world.now, ("table",), make, lambda *answer: world.answers.append(answer))
    world.settle()
    assert world.answers[0][1] == "the table has changed"
    assert world.initiator.holder(("table",)) is None


# -- execution -----------------------------------------------------------------------------------


def test_steps_run_in_order_and_a_synchronised_one_waits_for_all_11_12_18_19() -> None:
    world = World()
    begun(world)
    world.settle()
    c = world.peers[C].history
    assert c.index("DONE 0") < c.index("run 1")  # it passed the first step, and then waited
    world.check()


@pytest.mark.parametrize("failing", [0, 1])
def test_a_failure_undoes_that_step_and_all_before_5_15(failing: int) -> None:
    world = World()
    world.peers[B].failing = {failing}
    world.peers[C].failing = {failing}
    id = begun(world)
    world.settle()
    assert outcome(world, id) is State.FAILED
    found = world.namespace.find(id)
    assert found is not None and found.why.startswith(f"step {failing} fails on P")
    world.check()


def test_an_undo_needs_no_barrier_20() -> None:
    world = World()
    id = begun(world)
    world.settle(2)
    world.peers[A].crash()
    world.peers[C].failing = {1}
    world.initiator.abort(id, "no more")
    world.settle()
    # B is rolled back, although A is away.
    assert B in world.namespace.pending[id].settled
    world.heal()
    world.check()


def test_an_undo_that_fails_is_made_again_with_pauses_1_2_4() -> None:
    world = World()
    world.peers[A].bad_undos = 3
    world.peers[C].failing = {1}
    id = begun(world)
    world.settle(4)
    assert outcome(world, id) is State.ROLLING_BACK
    progress = world.initiator.progress[id][A, 0]
    assert progress.mark is StepMark.FAILED and progress.text == "it cannot be undone yet: not now"
    world.settle(30)
    assert world.peers[A].history.count("undo 0") == 4
    world.check()


def test_a_node_that_never_comes_back_is_forgotten_1_2_4() -> None:
    world = World()
    id = begun(world)
    world.settle(2)
    world.peers[A].crash()
    world.initiator.abort(id, "no more")
    world.settle()
    with pytest.raises(Refused, match="does not wait for this node"):
        world.initiator.forget(id, B)
    world.initiator.forget(id, A)
    world.settle()
    assert outcome(world, id) is State.FAILED and world.initiator.holder(("lock",)) is None
    # It comes back nevertheless, and is told to undo its part.
    world.heal()
    world.check()


def test_a_success_is_final_1_2_1_and_cannot_be_aborted_1_2_11() -> None:
    world = World()
    id = begun(world)
    world.settle(2)
    while id not in world.reported:
        (world.events() or [world.tick])[0]()
    with pytest.raises(Refused, match=f"operation {id} has ended: succeeded"):
        world.initiator.abort(id, "too late")
    world.elect()
    world.settle()
    world.check()


def test_the_first_outcome_wins_1_2_1() -> None:
    """Specification 27.10."""
    for first, second in ((End(1), Fail(1, "why")), (Fail(1, "why"), End(1))):
        namespace = running()
        assert namespace.apply(StepMarks(1, (PeerMark(A, 0, StepMark.DONE, "", b""),)))
        assert namespace.apply(first) and not namespace.apply(second)
        found = namespace.find(1)
        assert found is not None
        assert found.state is (State.SUCCEEDED if isinstance(first, End) else State.ROLLING_BACK)


def test_an_operation_ends_only_when_all_is_done() -> None:
    namespace = running()
    assert not namespace.apply(End(1))
    namespace.apply(StepMarks(1, (PeerMark(A, 0, StepMark.FAILED, "no", b""),)))
    namespace.apply(StepMarks(1, (PeerMark(A, 0, StepMark.DONE, "", b""),)))
    assert not namespace.apply(End(1))


def test_marks_that_come_twice_or_out_of_order_are_no_news() -> None:
    """Specification 27.9."""
    namespace = running(steps=3)
    for number, changed in ((1, False), (0, True), (0, False), (2, False), (1, True), (9, False)):
        mark = PeerMark(A, number, StepMark.DONE, "", b"")
        assert namespace.apply(StepMarks(1, (mark,))) == changed
    assert not namespace.apply(StepMarks(1, (PeerMark(9, 2, StepMark.DONE, "", b""),)))


def test_a_context_that_is_too_long_makes_the_operation_fail_1_2_9() -> None:
    namespace = running(steps=3)
    half = bytes(CONTEXT_MAX // 2 + 1)
    for number in range(2):
        namespace.apply(StepMarks(1, (PeerMark(A, number, StepMark.DONE, "", half),)))
    found = namespace.find(1)
    assert found is not None and found.state is State.ROLLING_BACK and "65536 bytes" in found.why


def test_a_deadline_makes_it_fail_15() -> None:
    world = World()
    id = begun(world, seconds=5.0)
    world.peers[C].crash()
    world.settle(15)
    found = world.namespace.find(id)
    assert found is not None and found.why == "it was not over in time"
    world.heal()
    world.check()


def test_a_resumable_operation_is_taken_over_1_2_6() -> None:
    world = World()
    id = begun(world, resumable=True)
    world.elect()
    world.settle()
    assert id in world.reported
    world.check()


def test_clean_up_waits_for_all_21() -> None:
    namespace = running()
    namespace.apply(Fail(1, "why"))
    assert not namespace.apply(Clean(1)) and namespace.holders == {"lock": 1}
    namespace.apply(StepMarks(1, (PeerMark(A, 0, StepMark.ROLLED_BACK, "", b""),)))
    assert namespace.apply(Clean(1)) and namespace.holders == {}


def test_a_step_that_was_only_begun_is_undone_1_2_5() -> None:
    world = World()
    id = begun(world)
    while not world.peers[A].runs:
        world.events([A])[0]()
    world.initiator.abort(id, "no more")
    world.settle()
    assert world.peers[A].history.count("cancel 0") == 1
    assert "undo 0" in world.peers[A].history
    world.check()


def test_a_node_without_the_operation_answers_as_if_it_had_done_its_part() -> None:
    """Specification 27.23."""
    world = World()
    world.settle(1)
    for state, mark in ((State.ROLLING_BACK, "ROLLED_BACK 0"), (State.SUCCEEDED, "SUCCEEDED 0")):
        world.peers[A].engine.told(world.now, 99, state, 0, {})
        assert world.peers[A].history[-1] == mark
    world.peers[A].engine.told(world.now, 99, State.RUNNING, 0, {})
    assert world.peers[A].history[-1] == "SUCCEEDED 0"


def test_a_malformed_operation_is_refused() -> None:
    world = World()
    engine = world.peers[A].engine
    with pytest.raises(ValueError, match="truncated"):
        engine.started(1, b"\x99")
    with pytest.raises(ValueError, match="comes as"):
        world.settle(1)
        world.begin(step("only", [A]))
        world.settle(1)
        (operation,) = world.operations.values()
        engine.started(operation.id + 1, encode(operation))


def test_the_last_operations_that_ended_are_remembered() -> None:
    """Specification 27.14."""
    namespace = Namespace(durable=True)
    for id in range(1, ENDED_MAX + 3):
        namespace.apply(Lock(id, 1, ()))
        namespace.apply(Fail(id, "why"))
    assert namespace.find(2) is None and namespace.find(3) is not None
    assert not namespace.apply(Forget(3, A))


def test_a_journal_says_where_a_peer_goes_on_22() -> None:
    """The first step that is not done; all steps before one that was begun were passed."""
    world = World()
    begun(world)
    world.settle(2)
    journal = world.peers[A].journal
    ((_, steps),) = journal.now.values()
    assert steps == {0: Journaled(0, 1, b"undo 0", b"P1 step 0")}


def running(steps: int = 1) -> Namespace:
    """A namespace with an operation of A."""
    namespace = Namespace(durable=True)
    namespace.apply(Lock(1, 5, ("lock",)))
    parts = tuple(step(f"step {number}", [A]) for number in range(steps))
    operation = Operation(1, "test", {}, 5, parts, ("lock",), 0.0, 9.0, False)
    assert namespace.apply(Begin(operation))
    return namespace
