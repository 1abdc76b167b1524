"""Refusals of commands of operators."""

from __future__ import annotations

from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer

#: Scripts parse this text, which is the same in all NEO installations.
PRIMARY_STAYS = "can not kill primary master node"


def denied(text: str) -> ErrorAnswer:
    """Return the exception to raise before anything is changed. ``text``: why, and what to do."""
    return ErrorAnswer(ErrorCode.DENIED, text)
