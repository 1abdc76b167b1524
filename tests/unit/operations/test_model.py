"""What an operation is, and its bounds (specification 27.1 to 27.7; requirements 1, 2, 3, 6, 23)."""

from __future__ import annotations

from typing import Any

import pytest

from neo.operations import entries, model
from neo.operations.model import (
    CONTEXT_MAX,
    PEERS_MAX,
    STEPS_MAX,
    TEXT_MAX,
    Operation,
    Step,
    StepMark,
    brief,
    of_brief,
    shortened,
)
from neo.protocol.codec import Decoder, encode
from neo.protocol.enums import NodeType
from neo.protocol.packets import OPERATIONS, RequestIdentification

STEP = Step("copy", (1, 2), True, True)


def operation(**changes: Any) -> Operation:
    fields: dict[str, Any] = {
        "id": 7,
        "kind": "backup",
        "arguments": {"path": "/backup", "full": False},
        "initiator": 3,
        "steps": (Step("look", (1, 2, 3), False, False), STEP),
        "locks": ("history", "table"),
        "begun": 1.5,
        "deadline": 9.0,
        "resumable": True,
    }
    return Operation(**fields | changes)


def test_an_operation_is_what_it_was_when_it_is_read_back_1_2_3_6() -> None:
    assert model.decode(model.encode(operation())) == operation()
    assert operation().peers == [1, 2, 3]


def test_a_storage_node_tells_of_its_journal_when_it_joins() -> None:
    """Specification 27.15: values of ``extra`` have no bytes."""
    long = {"readers": [1, 2], "path": "/backup/é", "text": "x" * 9000}
    extra = {OPERATIONS: [(brief(operation(arguments=long)), True)]}
    message = RequestIdentification(NodeType.STORAGE, 1, None, "c", None, extra)
    decoder = Decoder(64 * 1024)
    decoder.feed(encode(1, message))
    received = decoder.take()
    assert received is not None
    arrived = received[1]
    assert isinstance(arrived, RequestIdentification)
    ((values, succeeded),) = arrived.extra[OPERATIONS]
    assert of_brief(values) == operation(arguments={"path": "/backup/é"}) and succeeded is True


@pytest.mark.parametrize("values", [None, [], "x", [7, "backup"], [*brief(operation()), 1]])
def test_a_malformed_journal_is_refused(values: object) -> None:
    with pytest.raises(ValueError):
        of_brief(values)


@pytest.mark.parametrize(
    "changes",
    [
        {"id": 0},
        {"id": 1 << 63},
        {"kind": ""},
        {"kind": "x" * 65},
        {"steps": ()},
        {"steps": (STEP,) * (STEPS_MAX + 1)},
        {"steps": (Step("copy", tuple(range(PEERS_MAX + 1)), True, True),)},
        {"locks": ("",)},
        {"initiator": -1},
        {"arguments": {"path": "x" * (300 << 10)}},
        {"steps": (Step("own", (0,), True, True), STEP)},
        {"steps": (STEP, Step("own", (0,), False, True))},
        {"arguments": {f"path {number}": "x" * 1000 for number in range(20)}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_exceeds_a_bound_is_refused(changes: dict[str, Any]) -> None:
    """Specification 27.4."""
    with pytest.raises(ValueError, match=r"\w"):
        model.encode(operation(**changes))


@pytest.mark.parametrize("data", [b"", b"\xc0", b"\x90", b"\x99" + b"\x00" * 9, b"\xff" * (300 << 10)])
def test_what_is_malformed_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        model.decode(data)


@pytest.mark.parametrize(
    "entry",
    [
        entries.Lock(7, 3, ("history",)),
        entries.Begin(operation()),
        entries.StepMarks(7, (entries.PeerMark(1, 0, StepMark.DONE, "text", b"context"),)),
        entries.Fail(7, "why"),
        entries.End(7),
        entries.Forget(7, 2),
        entries.Clean(7),
        entries.Adopt(operation()),
        entries.Heard(7, 1, StepMark.SUCCEEDED),
    ],
    ids=lambda entry: type(entry).__name__,
)
def test_an_entry_is_what_it_was_when_it_is_read_back_23(entry: entries.Entry) -> None:
    """Specification 27.7."""
    assert entries.decode(entries.encode(entry)) == entry


@pytest.mark.parametrize("data", [b"", b"\x90", b"\x92\x63\x01", b"\x94\x00\x07\x03\xc0"])
def test_an_entry_of_a_later_release_is_not_understood(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        entries.decode(data)


def test_a_context_is_bounded() -> None:
    """Specification 27.4: of one mark; that of an operation in test_requirements."""
    mark = entries.PeerMark(1, 0, StepMark.DONE, "", bytes(CONTEXT_MAX + 1))
    with pytest.raises(ValueError, match="length"):
        entries.decode(entries.encode(entries.StepMarks(7, (mark,))))


def test_texts_for_people_are_shortened() -> None:
    assert shortened("short") == "short"
    assert len(shortened("x" * 2000)) == TEXT_MAX and shortened("x" * 2000).endswith("…")
