"""Client processes: every storage is opened in a forked process, never in the driver's.

So a client's memory is measured separately, a client that hangs can be killed, a crash affects no other
process, and the driver has no threads when it forks.
"""

import multiprocessing
import multiprocessing.connection
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
Ready = Callable[[], None]

_fork = multiprocessing.get_context("fork")
_MB = 1_000_000


class NotApplicable(Exception):
    """The system cannot do this work by its nature; the message is the reason."""


class ClientFailed(Exception):
    """A client process ended without a result, because of an error or a timeout."""


def run(function: Callable[[], T], seconds: float) -> T:
    """Return the result of `function()` in a client process of its own. Raise ClientFailed."""
    return run_many(1, lambda index, ready: function(), seconds)[0]


def run_many(count: int, function: Callable[[int, Ready], T], seconds: float) -> list[T]:
    """Return the results of `function(index, ready)` in `count` client processes in parallel.

    `ready()` returns when every client has called it: clients open their storages first and start to
    work together. Clients without a result after `seconds` are killed. Raise ClientFailed with the
    first error, after the end of the others.
    """
    barrier = _fork.Barrier(count)
    processes = []
    pipes: dict[Any, int] = {}
    try:
        for index in range(count):
            receiver, sender = _fork.Pipe(duplex=False)
            process = _fork.Process(
                target=_client, args=(function, index, barrier.wait, sender), daemon=True
            )
            process.start()
            sender.close()
            processes.append(process)
            pipes[receiver] = index
        return _collect(pipes, seconds)
    finally:
        for process in processes:
            process.join(1 if not pipes else 0)  # a client that answered is about to end
            if process.is_alive():
                process.kill()
                process.join()
        for receiver in pipes:
            receiver.close()


def _collect(pipes: dict[Any, int], seconds: float) -> list[Any]:
    """Collect the clients' answers. Remove their pipes from `pipes`; the others have not answered."""
    results: list[Any] = [None] * len(pipes)
    error: Exception | None
    end = time.monotonic() + seconds
    while pipes:
        left = max(end - time.monotonic(), 0)
        answered: list[Any] = list(multiprocessing.connection.wait(list(pipes), left))
        if not answered:
            raise ClientFailed(f"no result within {seconds:.0f} s")
        for receiver in answered:
            index = pipes.pop(receiver)
            with receiver:
                try:
                    error, result = receiver.recv()
                except EOFError:
                    error = ClientFailed("the client process died")
            if error is not None:
                raise error
            results[index] = result
    return results


def _client(
    function: Callable[[int, Ready], Any], index: int, ready: Callable[[], Any], sender: Any
) -> None:
    answer: tuple[Exception | None, Any]
    try:
        answer = None, function(index, ready)
    except (NotApplicable, ClientFailed) as error:
        answer = error, None
    except Exception as error:  # noqa: BLE001 - the process ends; its error goes to the driver
        answer = ClientFailed(f"{type(error).__name__}: {error}"), None
    sender.send(answer)
    sender.close()


class PeakMemory:
    """Measures the peak memory of processes above that at the creation of this object.

    Linux counts the peak (VmHWM) from the start of a process; writing 5 to clear_refs resets it to the
    present resident size.
    """

    def __init__(self, pids: dict[str, int]) -> None:
        self._pids = pids
        self._idle = {}
        for name, pid in pids.items():
            Path(f"/proc/{pid}/clear_refs").write_text("5")
            self._idle[name] = _status_kb(pid, "VmRSS")

    def rise(self) -> dict[str, float]:
        """Return the MB above idle of each process, by its name."""
        return {
            name: max(_status_kb(pid, "VmHWM") - self._idle[name], 0) * 1024 / _MB
            for name, pid in self._pids.items()
        }


def _status_kb(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0])
    raise ClientFailed(f"process {pid} has no {field}: it has ended")
