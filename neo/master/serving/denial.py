"""What an operator may not do now, as the answer to his command."""

from __future__ import annotations

from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer

#: Scripts parse these words, which are those of all NEO installations.
PRIMARY_STAYS = "can not kill primary master node"


def denied(text: str) -> ErrorAnswer:
    """To be raised, before anything is changed. ``text``: why, and what to do."""
    return ErrorAnswer(ErrorCode.DENIED, text)
