"""Futures and workflows: stepped at once, cancelled wherever they stand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from neo.node.task import Cancelled, Checkpoint, Future, Task


def test_a_future_is_done_once() -> None:
    future: Future[int] = Future()
    future.resolve(1)
    future.resolve(2)
    future.fail(ValueError())
    assert future.result() == 1
    failed: Future[int] = Future()
    failed.fail(ValueError("first"))
    failed.resolve(3)
    with pytest.raises(ValueError, match="first"):
        failed.result()


def test_a_result_is_not_asked_for_too_early() -> None:
    with pytest.raises(AssertionError):
        Future().result()


def test_callbacks_run_in_order_and_at_once_when_done() -> None:
    future: Future[int] = Future()
    seen: list[str] = []
    future.then(lambda f: seen.append(f"a{f.result()}"))
    future.then(lambda f: seen.append(f"b{f.result()}"))
    assert seen == []
    future.resolve(1)
    future.then(lambda f: seen.append(f"c{f.result()}"))
    assert seen == ["a1", "b1", "c1"]


def test_a_workflow_runs_until_its_first_await_at_once() -> None:
    future: Future[int] = Future()
    steps: list[Any] = []

    async def flow() -> str:
        steps.append("begin")
        steps.append(await future)
        return "end"

    task = Task(flow())
    assert steps == ["begin"]
    assert not task.done
    future.resolve(5)
    assert steps == ["begin", 5]
    assert task.result() == "end"


def test_what_is_done_already_does_not_suspend() -> None:
    """Neither does a checkpoint, if no other workflow can go on."""
    done: Future[int] = Future()
    done.resolve(1)

    async def flow() -> int:
        total = 0
        for _ in range(3):
            total += await done
            await Checkpoint()
        return total

    assert Task(flow()).result() == 3


def test_an_error_is_raised_at_the_await_and_may_be_handled() -> None:
    future: Future[int] = Future()

    async def flow() -> str:
        try:
            await future
        except ValueError as e:
            return f"handled {e}"
        return "nothing"

    task = Task(flow())
    future.fail(ValueError("it"))
    assert task.result() == "handled it"


def test_an_error_that_is_not_handled_is_the_tasks() -> None:
    async def recover() -> None:
        raise KeyError("mine")

    task = Task(recover())
    assert task.name.endswith("recover")
    with pytest.raises(KeyError):
        task.result()


def test_a_workflow_awaits_another() -> None:
    future: Future[int] = Future()

    async def inner() -> int:
        return 2 * await future

    async def outer() -> int:
        return 1 + await Task(inner())

    task = Task(outer())
    future.resolve(10)
    assert task.result() == 21


def test_workflows_are_resumed_in_the_order_they_began_to_wait() -> None:
    future: Future[None] = Future()
    order: list[int] = []

    async def flow(number: int) -> None:
        await future
        order.append(number)

    for number in range(4):
        Task(flow(number))
    future.resolve(None)
    assert order == [0, 1, 2, 3]


# -- cancellation ----------------------------------------------------------------------------------


def cancelled(task: Task[Any]) -> bool:
    with pytest.raises(Cancelled):
        task.result()
    return True


@pytest.mark.parametrize("position", [0, 1, 2])
def test_cancelled_at_any_await(position: int) -> None:
    futures: list[Future[int]] = [Future() for _ in range(3)]
    reached: list[int] = []
    cleaned: list[bool] = []

    async def flow() -> None:
        try:
            for number, future in enumerate(futures):
                reached.append(number)
                await future
        finally:
            cleaned.append(True)

    task = Task(flow())
    for future in futures[:position]:
        future.resolve(0)
    task.cancel()
    assert cancelled(task)
    assert cleaned == [True]
    for future in futures[position:]:
        future.resolve(0)  # nobody waits any more
    assert reached == list(range(position + 1))


def test_cancelled_before_the_answer_that_comes_in_the_same_event() -> None:
    """The answer resolves the future, but a callback before the task's cancels the task."""
    future: Future[int] = Future()
    after: list[int] = []

    async def flow() -> None:
        after.append(await future)

    tasks: list[Task[None]] = []
    future.then(lambda _: tasks[0].cancel())
    tasks.append(Task(flow()))
    future.resolve(1)
    assert cancelled(tasks[0])
    assert after == []


def by_itself(suspend: Callable[[], Any]) -> tuple[Task[None], list[str]]:
    """A workflow that does something by which it is cancelled, then awaits."""
    start: Future[None] = Future()
    steps: list[str] = []
    tasks: list[Task[None]] = []

    async def flow() -> None:
        await start
        tasks[0].cancel()
        steps.append("cancelled")
        await suspend()
        steps.append("went on")

    tasks.append(Task(flow()))
    start.resolve(None)
    return tasks[0], steps


@pytest.mark.parametrize("suspend", [Checkpoint, Future])
def test_a_workflow_that_cancels_itself_ends_at_its_next_await(suspend: Callable[[], Any]) -> None:
    task, steps = by_itself(suspend)
    assert steps == ["cancelled"]
    assert cancelled(task)


def test_cancelling_twice_throws_once_and_what_is_done_stays() -> None:
    count: list[int] = []

    async def flow() -> int:
        try:
            return await Future()
        except Cancelled:
            count.append(1)
            return 4

    task = Task(flow())
    for _ in range(2):
        task.cancel()
        assert (count, task.result()) == ([1], 4)


def test_an_error_while_cleaning_up_is_the_result() -> None:
    future: Future[int] = Future()

    async def flow() -> None:
        try:
            await future
        finally:
            raise KeyError("clean-up")

    task = Task(flow())
    task.cancel()
    with pytest.raises(KeyError):
        task.result()


def test_whoever_awaits_a_cancelled_workflow_is_told() -> None:
    future: Future[int] = Future()

    async def inner() -> None:
        await future

    inner_task = Task(inner())

    async def outer() -> str:
        try:
            await inner_task
        except Cancelled:
            return "told"
        return "not told"

    task = Task(outer())
    inner_task.cancel()
    assert task.result() == "told"


def test_a_workflow_that_is_thrown_away_may_end_what_it_waits_for() -> None:
    """As one does that closes the connection whose answer it awaits."""
    answer: Future[None] = Future()

    async def ask() -> None:
        try:
            await answer
        finally:
            answer.fail(ValueError("closed"))

    coroutine = ask()
    task = Task(coroutine)
    coroutine.close()  # what the garbage collector does
    assert answer.done
    assert not task.done
