"""Entries of the log about operations (specification 27.7)."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct
from msgspec.msgpack import Decoder, Encoder

from neo.operations.model import (
    CONTEXT_MAX,
    PEERS_MAX,
    STEPS_MAX,
    TEXT_MAX,
    Id,
    Name,
    Operation,
    Peer,
    StepMark,
    StepNumber,
)

Text = Annotated[str, Meta(max_length=TEXT_MAX)]


class Lock(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=0):
    """Take all these locks for an operation, or none."""

    id: Id
    initiator: Annotated[int, Meta(ge=0)]
    names: Annotated[tuple[Name, ...], Meta(max_length=STEPS_MAX)]


class Begin(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=1):
    """Begin an operation that has its locks."""

    operation: Operation


class PeerMark(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """``context``: what the step tells the steps that follow."""

    peer: Peer
    step: StepNumber
    mark: StepMark
    text: Text
    context: Annotated[bytes, Meta(max_length=CONTEXT_MAX)]


class StepMarks(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=2):
    id: Id
    marks: Annotated[tuple[PeerMark, ...], Meta(max_length=PEERS_MAX)]


class Fail(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=3):
    """The operation fails. ``initiator``: whoever asks for it."""

    id: Id
    why: Text


class End(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=4):
    """The operation succeeds. The change of global data that belongs to it follows from its arguments:
    the primary makes it before Clean, and the next one, too."""

    id: Id


class Forget(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=5):
    """Do not wait for a peer to undo its part."""

    id: Id
    peer: Peer


class Clean(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=6):
    """All peers have undone their parts, or have noted the success: the operation is over."""

    id: Id


class Adopt(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=7):
    """A primary without a log, started anew, finds an operation in the journal of a peer."""

    operation: Operation


class Heard(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=8):
    """What a peer has in its journal of an adopted operation. SUCCEEDED: the outcome; BEGUN: no outcome;
    ROLLED_BACK: nothing."""

    id: Id
    peer: Peer
    mark: StepMark


Entry = Lock | Begin | StepMarks | Fail | End | Forget | Clean | Adopt | Heard

_encoder = Encoder()
_decoder: Decoder[Entry] = Decoder(Entry)


def encode(entry: Entry) -> bytes:
    return _encoder.encode(entry)


def decode(data: bytes) -> Entry:
    """Return the entry. Raise ValueError."""
    return _decoder.decode(data)
