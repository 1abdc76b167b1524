"""Raise exceptions from outside in a thread, at a chosen instruction of the client."""

from __future__ import annotations

import dis
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import neo

#: Tool id of sys.monitoring that neither debuggers nor coverage use.
TOOL = 4
FOLDER = str(Path(neo.__file__).parent)


class Interrupted(BaseException):
    """Stands for KeyboardInterrupt, which would end the tests."""


_points: dict[CodeType, frozenset[int]] = {}


def points(code: CodeType) -> frozenset[int]:
    """Offsets of the instructions before which to raise, besides the entry of the function.

    In CPython 3.11 to 3.13 the interpreter looks for pending signals and exceptions at RESUME, the
    entry of a function; at a jump backwards; and when a call is done. No other instruction does;
    if one is added, all comments "nothing is called between these lines" must be read again.

    The exception is that of the call: the ``try`` and ``with`` around the call handle it. A tracer
    can only raise before an instruction. So it does before the next one, or, if that is in another
    ``try`` or ``with``, before the call.
    """
    found = _points.get(code)
    if found is None:
        bytecode = dis.Bytecode(code)
        entries = bytecode.exception_entries  # type: ignore[attr-defined]

        def handler(offset: int) -> int | None:
            return next((e.target for e in entries if e.start <= offset < e.end), None)

        offsets = set()
        call: int | None = None
        for instruction in bytecode:
            name, offset = instruction.opname, instruction.offset
            backwards = name.startswith(("JUMP_BACKWARD", "POP_JUMP_BACKWARD"))
            if call is not None:
                offsets.add(offset if handler(call) == handler(offset) else call)
            if name == "RESUME" or (backwards and "NO_INTERRUPT" not in name):
                offsets.add(offset)
            called = name.startswith("CALL") and not name.startswith("CALL_INTRINSIC")
            call = offset if called else None
        found = _points[code] = frozenset(offsets)
    return found


class Tracer:
    """Count the points that a thread passes in the code of neo, and raise an exception at one of
    them."""

    def __init__(self, at: int | None = None, error: BaseException | None = None) -> None:
        """Raise ``error`` at point number ``at``, counted from 0; None: count only."""
        self.passed = 0
        self.where = ""
        self.error = error or Interrupted()
        self._at = at
        self._thread = threading.get_ident()

    def __enter__(self) -> Tracer:
        if sys.version_info >= (3, 13):
            _monitor(self)
        else:
            sys.settrace(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        if sys.version_info >= (3, 13):
            _stop_monitoring()
        else:
            sys.settrace(None)

    def _called(self, frame: FrameType, event: str, argument: object) -> Any:
        if not frame.f_code.co_filename.startswith(FOLDER):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        self.pass_by(frame.f_code)  # RESUME
        return self._inside

    def _inside(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "opcode":
            self.instruction(frame.f_code, frame.f_lasti)
        return self._inside

    def instruction(self, code: CodeType, offset: int) -> None:
        if offset in points(code) and offset != _entry(code):
            self.pass_by(code, offset)

    def pass_by(self, code: CodeType, offset: int = 0) -> None:
        self.passed += 1
        if self.passed - 1 == self._at and threading.get_ident() == self._thread:
            line = next((line for a, b, line in code.co_lines() if a <= offset < b), None)
            self.where = f"{code.co_qualname}, line {line}"
            raise self.error


def _monitor(tracer: Tracer) -> None:
    """Use sys.monitoring: from Python 3.13 on, the first run with sys.settrace() has no events for
    instructions."""
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined, unused-ignore]
    events = monitoring.events
    thread = threading.get_ident()

    def entered(code: CodeType, offset: int) -> Any:
        if not code.co_filename.startswith(FOLDER):
            return monitoring.DISABLE
        if threading.get_ident() == thread:
            tracer.pass_by(code)
        return None

    def instruction(code: CodeType, offset: int) -> Any:
        if not code.co_filename.startswith(FOLDER):
            return monitoring.DISABLE
        if threading.get_ident() == thread:
            tracer.instruction(code, offset)
        return None

    monitoring.use_tool_id(TOOL, "boundaries")
    monitoring.register_callback(TOOL, events.PY_START, entered)
    monitoring.register_callback(TOOL, events.INSTRUCTION, instruction)
    monitoring.set_events(TOOL, events.PY_START | events.INSTRUCTION)


def _stop_monitoring() -> None:
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined, unused-ignore]
    monitoring.set_events(TOOL, 0)
    monitoring.free_tool_id(TOOL)


_entries: dict[CodeType, int] = {}


def _entry(code: CodeType) -> int:
    """Return the offset at which a function is entered, which has its own event."""
    if code not in _entries:
        _entries[code] = next(i.offset for i in dis.get_instructions(code) if i.opname == "RESUME")
    return _entries[code]


def count(call: Callable[[], Any]) -> int:
    """Return how many points a call passes in this thread."""
    with Tracer() as tracer:
        call()
    return tracer.passed


def interrupt(call: Callable[[], Any], at: int, error: BaseException | None = None) -> str | None:
    """Raise at a point of the call. Return where; None if the call did not reach the point.

    Other exceptions of the call are raised.
    """
    tracer = Tracer(at, error)
    try:
        with tracer:
            call()
    except type(tracer.error) as e:
        if e is not tracer.error:
            raise
    return tracer.where or None
