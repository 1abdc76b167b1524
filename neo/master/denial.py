"""What an operator may not do now, as the answer to his command."""

from __future__ import annotations

from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer


def denied(text: str) -> ErrorAnswer:
    """To be raised, before anything is changed. ``text``: why, and what to do."""
    return ErrorAnswer(ErrorCode.DENIED, text)
