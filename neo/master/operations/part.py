"""Operations of the cluster: begun by operators, executed by storage nodes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol

import msgspec

from neo.master.cluster import Cluster
from neo.master.denial import denied
from neo.master.operations.kinds import Kind, Steps
from neo.node.core import Core
from neo.node.peer import Peer
from neo.operations.entries import Clean, End, Entry
from neo.operations.initiator import Initiator, OwnSteps, Progress, Refused, held
from neo.operations.model import INITIATOR, Operation, State, Step, StepMark, of_brief
from neo.operations.namespace import Namespace, Pending
from neo.protocol.enums import ClusterState
from neo.protocol.errors import PeerError
from neo.protocol.ids import format_nid, format_nids
from neo.protocol.packets import (
    FEATURE_OURS,
    AnswerBeginOperation,
    AnswerOperations,
    AskBeginOperation,
    NotifyOperation,
    NotifyOperationEnded,
    NotifyOperationMark,
    NotifyOperationState,
    OperationRow,
    StepRow,
)

logger = logging.getLogger("neo.master")

#: Period of deadlines, and of marks that wait to be posted.
TICK_SECONDS = 0.25


class OperationLog(Protocol):
    """Where entries go. ``number``: of this primary. ``persistent``: they survive it."""

    @property
    def number(self) -> int: ...

    @property
    def persistent(self) -> bool: ...

    @property
    def namespace(self) -> Namespace: ...

    def post(self, entry: Entry, applied: Callable[[bool], None]) -> None:
        """Have an entry applied, in the order of the calls; then call ``applied``, with whether it
        changed the namespace."""


class MemoryLog:
    """The log of a master that is alone: it ends with it."""

    persistent = False

    def __init__(self, number: int) -> None:
        self.number = number
        self.namespace = Namespace(durable=False)
        self._posted: list[tuple[Entry, Callable[[bool], None]]] = []
        self._applying = False

    def post(self, entry: Entry, applied: Callable[[bool], None]) -> None:
        self._posted.append((entry, applied))
        if self._applying:
            return
        self._applying = True
        try:
            while self._posted:
                entry, applied = self._posted.pop(0)
                applied(self.namespace.apply(entry))
        finally:
            self._applying = False


#: Raises Refused if the steps should not begin, after nodes were asked. It gets the steps, and what the
#: operator asked for.
Check = Callable[[Steps, Mapping[str, Any]], Coroutine[Any, Any, None]]


class Operations:
    """Implements Log, Peers and OwnSteps of :mod:`neo.operations.initiator`. ``kinds``: by name, as are
    ``checks``."""

    def __init__(
        self,
        cluster: Cluster,
        core: Core,
        log: OperationLog,
        kinds: Mapping[str, Kind],
        checks: Mapping[str, Check] = MappingProxyType({}),
    ) -> None:
        self._cluster = cluster
        self._core = core
        self._log = log
        self._kinds = dict(kinds)
        self._checks = checks
        #: Operations whose arguments this release cannot read.
        self._unreadable: set[int] = set()
        self._initiator = Initiator(
            number=log.number,
            namespace=log.namespace,
            log=self,
            peers=self,
            persistent=log.persistent,
            own=self,
        )

    def register(self, name: str, kind: Kind) -> None:
        """Let operators begin operations of another kind."""
        self._kinds[name] = kind

    def all(self) -> list[Pending]:
        """Return the operations that are known, the last ones that have ended first."""
        return [*self._log.namespace.ended, *self._log.namespace.pending.values()]

    def start(self) -> None:
        """Begin to watch the operations."""
        self._core.call_later(TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        self._initiator.tick(self._core.host.time())
        self._core.call_later(TICK_SECONDS, self._tick)

    # -- storage nodes -----------------------------------------------------------------------------

    def storage_joined(self, peer: Peer) -> None:
        """Tell a storage node of its operations. Raise PeerError if what it tells is malformed."""
        node = peer.node
        assert node is not None and node.nid is not None
        if FEATURE_OURS not in node.features:
            return
        journal = _journal(node.journal)
        if self._peer(node.nid) is not None:
            self._initiator.joined(node.nid, journal)

    def recovered(self) -> None:
        """Tell blank nodes of their operations: their ids are their own."""
        for peer in self._cluster.storages():
            if peer.node is not None and peer.node.blank:
                self.storage_joined(peer)

    def _peer(self, nid: int) -> Peer | None:
        """Return a storage node that is connected. A blank one does not count before the partition table
        is known: it may have the id of a node that has data, and a part in operations."""
        peer = self._cluster.connected.get(nid)
        if nid < 0 or peer is None or peer.node is None:
            return None
        if peer.node.blank and self._cluster.state is ClusterState.RECOVERING:
            return None
        return peer

    def marked(self, nid: int, m: NotifyOperationMark) -> None:
        """Take a mark of a storage node. Raise PeerError if there is no such mark."""
        try:
            mark = StepMark(m.mark)
        except ValueError:
            raise PeerError(f"operation {m.id}: there is no mark {m.mark}") from None
        now = self._core.host.time()
        self._initiator.marked(now, nid, m.id, m.step, mark, m.done, m.text, m.context)

    def dropped(self, nid: int) -> None:
        """Do not wait for a storage node that the operator removed from the cluster."""
        for pending in list(self._log.namespace.pending.values()):
            if nid in pending.done:
                if pending.state is State.RUNNING:
                    self._initiator.abort(pending.id, f"{format_nid(nid)} was dropped")
                try:
                    self._initiator.forget(pending.id, nid)
                except Refused:
                    pass

    # -- commands ----------------------------------------------------------------------------------

    def held(self, *names: str) -> str:
        """Return which operation holds one of these locks, in words; '' if none does."""
        holder = self._initiator.holder(names)
        return "" if holder is None else held(holder, names)

    def check(self, *names: str) -> None:
        """Raise ErrorAnswer if an operation holds one of these locks: a command would disturb it."""
        if why := self.held(*names):
            raise denied(why)

    def check_drop(self, nid: int) -> None:
        """Raise ErrorAnswer unless the operator may drop a storage node. An operation that holds the
        partition table, and only waits for this node, does not forbid it."""
        holder = self._initiator.holder(("table",))
        if holder is None or holder.state is State.RUNNING or nid not in holder.done:
            self.check("table")

    def begin(self, peer: Peer, message_id: int, m: AskBeginOperation) -> None:
        """Answer when the operation has begun; with ``dry_run``, tell its steps. Raise ErrorAnswer."""
        kind = self._kinds.get(m.kind)
        if kind is None:
            raise denied(f"there is no kind of operations {m.kind!r}: {', '.join(self._kinds)}")
        made: list[Steps] = []

        def make(id: int) -> Operation:
            made.append(steps := self._planned(kind, m.arguments))
            now = self._core.host.time()
            return Operation(
                id=id,
                kind=m.kind,
                arguments=steps.arguments,
                initiator=self._log.number,
                steps=steps.steps,
                locks=kind.locks,
                begun=now,
                deadline=now + steps.seconds,
                resumable=kind.resumable,
            )

        def answer(id: int, why: str) -> None:
            if why:
                error = denied(why)
                peer.refuse(message_id, error.code, error.message)
                return
            logger.warning("operation %s begins, as the operator asked: %s %s", id, m.kind, m.arguments)
            peer.answer(message_id, AnswerBeginOperation(id, _step_rows(made[-1].steps)))

        def go_on(planned: Steps) -> None:
            if m.dry_run:
                peer.answer(message_id, AnswerBeginOperation(None, _step_rows(planned.steps)))
            else:
                self._initiator.begin(self._core.host.time(), kind.locks, make, answer)

        async def check_first(check: Check, planned: Steps) -> None:
            try:
                await check(planned, m.arguments)
                go_on(planned)
            except Refused as e:
                answer(0, str(e))

        try:
            planned = self._planned(kind, m.arguments)
            nids = {nid for step in planned.steps for nid in step.peers} - {INITIATOR}
            if why := self.absent(sorted(nids)):
                raise Refused(why)
            if (check := self._checks.get(m.kind)) is not None:
                self._core.spawn(check_first(check, planned))
            else:
                go_on(planned)
        except Refused as e:
            raise denied(str(e)) from None

    def _planned(self, kind: Kind, arguments: Mapping[str, Any]) -> Steps:
        """Return the steps. Raise Refused, also while this master may not know of an operation: what it
        forgot with its memory is in journals of nodes. A node that is dropped has no part any more."""
        steps = kind.plan(arguments)
        away = self._cluster.partitions.nodes() - steps.leaving - self._cluster.connected.keys()
        if away and not self._log.persistent:
            names = format_nids(away)
            raise Refused(f"{names} must be connected, since it may have a part in an earlier operation")
        return steps

    def abort(self, id: int) -> None:
        """Raise ErrorAnswer."""
        try:
            self._initiator.abort(id, "the operator aborted it")
        except Refused as e:
            raise denied(str(e)) from None
        logger.warning("operation %s is aborted, as the operator asked", id)

    def forget(self, id: int, nid: int) -> None:
        """Raise ErrorAnswer."""
        try:
            self._initiator.forget(id, nid)
        except Refused as e:
            raise denied(str(e)) from None
        logger.warning("operation %s does not wait for %s, as the operator asked", id, format_nid(nid))

    def describe(self, id: int | None) -> AnswerOperations:
        """Return one operation, or all. Raise ErrorAnswer if there is no such operation."""
        if id is None:
            return AnswerOperations([self._row(each) for each in self.all()])
        found = self._log.namespace.find(id)
        if found is None:
            raise denied(f"there is no operation {id}, or it ended long ago")
        return AnswerOperations([self._row(found)])

    def _row(self, pending: Pending) -> OperationRow:
        operation = pending.operation
        known = self._initiator.progress.get(pending.id, {})
        state = self._initiator.outcome(pending)
        if operation is None:
            return (pending.id, "", {}, state.value, 0.0, [*pending.locks], pending.why, [], [])
        progress = [
            (nid, number, *_progress(pending, nid, number, known))
            for number, step in enumerate(operation.steps)
            for nid in step.peers
        ]
        shown = {key: value for key, value in operation.arguments.items() if _is_short(value)}
        return (
            operation.id,
            operation.kind,
            shown,
            state.value,
            operation.begun,
            [*pending.locks],
            pending.why,
            _step_rows(operation.steps),
            progress,
        )

    # -- Log, Peers and OwnSteps of the initiator --------------------------------------------------

    def post(self, entry: Entry) -> None:
        self._log.post(entry, partial(self._applied, entry))

    def _applied(self, entry: Entry, changed: bool) -> None:
        self._initiator.applied(self._core.host.time(), entry, changed)
        if changed and isinstance(entry, End | Clean):
            self._report(entry)

    def _report(self, entry: End | Clean) -> None:
        """Tell that an operation is over, when its locks are free and nothing is left to do for this
        master."""
        ended = self._log.namespace.find(entry.id)
        assert ended is not None
        if ended.operation is None:
            return
        kind, succeeded = ended.operation.kind, ended.state is State.SUCCEEDED
        at_once = self._log.persistent and INITIATOR not in ended.done
        if not succeeded or isinstance(entry, End) == at_once:
            if succeeded:
                logger.warning("operation %s (%s) succeeded", ended.id, kind)
            self._cluster.events.operation_over(kind)

    def absent(self, peers: Sequence[int]) -> str:
        connected = self._cluster.connected
        if away := [nid for nid in peers if nid not in connected]:
            return f"{format_nids(away)} must be connected: neoctl status"
        nodes = [connected[nid].node for nid in peers]
        old = [node.nid for node in nodes if node and FEATURE_OURS not in node.features]
        if old:
            names = format_nids([nid for nid in old if nid is not None])
            return f"{names} must be upgraded: it does not know operations"
        return ""

    def connected(self) -> Sequence[int]:
        return [nid for nid in self._cluster.connected if self._peer(nid) is not None]

    def operation(self, peer: int, id: int, body: bytes) -> None:
        if (storage := self._peer(peer)) is not None:
            storage.send(NotifyOperation(id, body))

    def state(self, peer: int, id: int, state: State, pending: Pending | None) -> None:
        if (storage := self._peer(peer)) is None:
            return
        complete = 0 if pending is None else pending.complete
        context = {} if pending is None else pending.context
        rows = [(step, nid, told) for (step, nid), told in context.items()]
        storage.send(NotifyOperationState(id, state.value, complete, rows))

    def run(self, operation: Operation, step: int) -> bool:
        try:
            return self._own(operation).run(operation, step)
        except ValueError as e:
            raise Refused(_unreadable(operation, e)) from None

    def undo(self, operation: Operation, step: int) -> bool:
        return self._tried(operation, lambda own: own.undo(operation, step))

    def finish(self, operation: Operation) -> bool:
        return self._tried(operation, lambda own: own.finish(operation))

    def waits(self, operation: Operation, step: int) -> str:
        return self._own(operation).waits(operation, step)

    def _own(self, operation: Operation) -> OwnSteps:
        """Raise ValueError if this release does not know the kind: another one began the operation."""
        kind = self._kinds.get(operation.kind)
        if kind is None or kind.own is None:
            raise ValueError(f"{operation.kind!r} is not known")
        return kind.own

    def _tried(self, operation: Operation, call: Callable[[OwnSteps], bool]) -> bool:
        try:
            return call(self._own(operation))
        except ValueError as e:
            if operation.id not in self._unreadable:  # else the log has it
                self._unreadable.add(operation.id)
                logger.error("%s", _unreadable(operation, e))
            return False

    def ended(self, peer: int, id: int) -> None:
        if (storage := self._peer(peer)) is not None:
            storage.send(NotifyOperationEnded(id))


def _unreadable(operation: Operation, error: ValueError) -> str:
    return (
        f"operation {operation.id} ({operation.kind}) cannot go on with this master: {error}: install the"
        " same release everywhere"
    )


def _journal(rows: object) -> list[tuple[Operation, bool]]:
    """Return the operations that a storage node told when it joined. Raise PeerError."""
    try:
        known = msgspec.convert(rows, list[tuple[Any, bool]])
        return [(of_brief(values), succeeded) for values, succeeded in known]
    except ValueError as e:
        raise PeerError(f"its journal of operations is malformed: {e}") from None


def _step_rows(steps: Sequence[Step]) -> list[StepRow]:
    return [(step.name, [*step.peers], step.synchronised, step.undo) for step in steps]


def _progress(
    pending: Pending, nid: int, number: int, known: Mapping[tuple[int, int], Progress]
) -> tuple[str, float, str]:
    """Return how far a node is with a step: (mark, from 0 to 1, what it does or why it failed)."""
    told = known.get((nid, number))
    if pending.state in (State.ROLLING_BACK, State.FAILED) and nid in pending.settled:
        return "forgotten" if nid in pending.forgotten else "rolled back", 0.0, ""
    if pending.state is State.ROLLING_BACK and told is not None and told.mark is StepMark.FAILED:
        return "failed", told.done, told.text  # its undo, maybe, which is tried again
    if pending.done.get(nid, 0) > number or pending.state is State.SUCCEEDED:
        return "done", 1.0, ""
    if told is None:
        return "waits", 0.0, ""
    return told.mark.name.lower(), told.done, told.text


def _is_short(value: Any) -> bool:
    return isinstance(value, (str, int, float, bytes, type(None)))
