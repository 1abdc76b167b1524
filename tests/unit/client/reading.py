"""Answers of a scripted cluster to reads, and the database above the client."""

from __future__ import annotations

from hashlib import sha1
from typing import Any

from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import p64
from neo.protocol.packets import AnswerObject, AskObject, Message

OID = p64(1)


def answer(data: bytes, serial: int = 50, next_serial: int | None = None) -> Any:
    def answer(m: AskObject) -> Message:
        return AnswerObject(
            m.oid,
            p64(serial),
            None if next_serial is None else p64(next_serial),
            0,
            sha1(data).digest(),
            data,
            None,
        )

    return answer


def refuse(code: ErrorCode) -> Any:
    def refuse(m: Message) -> Message:
        raise ErrorAnswer(code, "no")

    return refuse


class DB:
    """Stands for the argument of registerDB()."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def invalidate(self, tid: bytes, oids: list[bytes]) -> None:
        self.calls.append((tid, *oids))

    def invalidateCache(self) -> None:
        self.calls.append(("all",))

    def transform_record_data(self, data: bytes) -> bytes:
        return data

    untransform_record_data = transform_record_data
