"""An operation, its steps, and how far they are (specification 27.1 to 27.6)."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from msgspec.msgpack import Decoder, Encoder

#: Bounds of what is kept in the log and in journals. A thousand storage nodes are more than anyone has.
STEPS_MAX = 64
PEERS_MAX = 4096
#: Lengths of names, and of texts for people.
NAME_MAX = 64
TEXT_MAX = 1000
#: Bytes of an operation, and of the context of one.
BODY_MAX = 256 << 10
CONTEXT_MAX = 64 << 10
#: The peer that stands for the primary itself, whoever that is.
INITIATOR = 0
#: Bytes of an operation without long arguments, and of all operations that a peer names when it joins: a
#: stranger may send 64 KiB.
BRIEF_MAX = 16 << 10
KNOWN_MAX = 3 * BRIEF_MAX
#: Characters of an argument that is not long.
ARGUMENT_MAX = 8 << 10

Name = Annotated[str, Meta(min_length=1, max_length=NAME_MAX)]
Id = Annotated[int, Meta(ge=1, le=(1 << 63) - 1)]
Peer = Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
StepNumber = Annotated[int, Meta(ge=0, lt=STEPS_MAX)]


class StepMark(IntEnum):
    """What a peer tells of a step, or, the last two, of its whole part. FAILED also means that the peer
    cannot begin it. SUCCEEDED: it has noted the outcome durably."""

    BEGUN = 0
    DONE = 1
    FAILED = 2
    ROLLED_BACK = 3
    SUCCEEDED = 4


class State(Enum):
    """LOCKING: it has its locks, and no steps yet. ADOPTED: a primary without a log found it in journals
    of peers, and asks the others. The last two are outcomes."""

    LOCKING = "LOCKING"
    ADOPTED = "ADOPTED"
    RUNNING = "RUNNING"
    ROLLING_BACK = "ROLLING_BACK"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"

    @property
    def ended(self) -> bool:
        return self is State.SUCCEEDED or self is State.FAILED


class Step(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """``peers`` execute it; the others pass it. ``synchronised``: it begins when all peers of the
    operation are past the steps before. ``undo``: it changes something that must be undone if the
    operation fails."""

    name: Name
    peers: Annotated[tuple[Peer, ...], Meta(max_length=PEERS_MAX)]
    synchronised: bool
    undo: bool


class Operation(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """``initiator``: a number of the primary that began it, which no other primary has. ``begun``,
    ``deadline``: seconds since 1970. ``resumable``: the next primary goes on with it."""

    id: Id
    kind: Name
    arguments: dict[str, Any]
    initiator: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
    steps: Annotated[tuple[Step, ...], Meta(min_length=1, max_length=STEPS_MAX)]
    locks: Annotated[tuple[Name, ...], Meta(max_length=STEPS_MAX)]
    begun: float
    deadline: float
    resumable: bool

    @property
    def peers(self) -> list[int]:
        """Return the peers that execute a step, ascending."""
        return sorted({peer for step in self.steps for peer in step.peers})

    @property
    def others(self) -> list[int]:
        """Return the peers but the primary itself, ascending."""
        return [peer for peer in self.peers if peer != INITIATOR]


_encoder = Encoder()
_decoder = Decoder(Operation)


def encode(operation: Operation) -> bytes:
    """Return the operation in MessagePack. Raise ValueError if it exceeds a bound."""
    data = _encoder.encode(operation)
    if len(data) > BODY_MAX:
        raise ValueError(f"the operation takes {len(data)} bytes, and {BODY_MAX} are possible")
    if not _is_journaled(operation):
        raise ValueError("the primary begins before another peer has a journal of it")
    if (size := len(_encoder.encode(brief(operation)))) > BRIEF_MAX:
        raise ValueError(f"steps and nodes take {size} bytes, and {BRIEF_MAX} are possible")
    _decoder.decode(data)  # bounds are checked there
    return data


def _is_journaled(operation: Operation) -> bool:
    """Return whether some peer has executed a step, and knows of the operation, before each step of the
    primary itself that must be undone. The next primary may have no other memory."""
    known = False
    for step in operation.steps:
        if INITIATOR in step.peers and step.undo and not (known and step.synchronised):
            return False
        known = known or any(peer != INITIATOR for peer in step.peers)
    return True


def decode(data: bytes) -> Operation:
    """Return the operation. Raise ValueError."""
    if len(data) > BODY_MAX:
        raise ValueError(f"an operation of {len(data)} bytes is too long")
    return _decoder.decode(data)


def brief(operation: Operation) -> list[Any]:
    """Return the operation without long arguments, in values without bytes: all that a primary must know
    of one that it adopts."""
    arguments = {key: value for key, value in operation.arguments.items() if _is_short(value)}
    values: list[Any] = msgspec.to_builtins(msgspec.structs.replace(operation, arguments=arguments))
    return values


def of_brief(values: object) -> Operation:
    """Return the operation that :func:`brief` described. Raise ValueError."""
    return msgspec.convert(values, Operation)


def _is_short(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= ARGUMENT_MAX
    return value is None or isinstance(value, (int, float))


def shortened(text: str) -> str:
    """Return a text for people that is not longer than TEXT_MAX."""
    return text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 1] + "…"
