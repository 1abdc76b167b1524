"""Well-typed messages with extreme values, from a separate random generator: a seed repeats a run."""

from __future__ import annotations

import math
from random import Random
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from msgspec import Meta
from msgspec.structs import replace

from neo.protocol.enums import EXTENSION_TYPES, NodeType
from neo.protocol.packets import (
    BLANK,
    CODES,
    FEATURES,
    GREATEST_NID,
    Finite,
    Message,
    RequestIdentification,
)

#: Extreme integers, in the range of their field or not.
INTEGERS = (
    0, 1, -1, 2, 3, 7, 100, 4096, 2**24 - 1, 2**24, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**32 - 1,
    2**32, 2**63 - 1, 2**63, -(2**63), 2**64 - 1, -0x0FFFFFFF, -0x1FFFFFFF, -0x2FFFFFFF,
)  # fmt: skip
FLOATS = (0.0, -1.0, 1.0, 10.0, 1e308, -1e308, 5e-324, 2.0**63, math.nan, math.inf, -math.inf)
IDS = (bytes(8), b"\xff" * 8, b"\x7f" + b"\xff" * 7, b"\x80" + bytes(7), b"\0\0\0\0\0\0\0\1",
       b"\0\0\0\0\0\0\0\x0a")  # fmt: skip
TEXTS = ("", "test", "up", "\0", "x" * 5000, "127.0.0.1", "::", "no host", "\udcff", "é" * 100)
BYTES = (b"", b"\0", b"\xff" * 300, bytes(40_000))
KEYS = (FEATURES, BLANK, GREATEST_NID, "new_nid", "devpath", "pack_tid", "partitions", "backup", "",
        "cluster_state", "down", "pt_summary", "address")  # fmt: skip
_FREE: tuple[Any, ...] = (
    int, Finite, bool, bytes, str, NoneType, list[Any], dict[str, Any], NodeType,
)  # fmt: skip


class Extremes:
    """Makes values and messages. ``random`` decides."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._hints = {cls: get_type_hints(cls, include_extras=True) for cls in CODES}
        self._classes = sorted(CODES, key=CODES.__getitem__)

    def message(self, cls: type[Message] | None = None) -> Message:
        """Return a message of ``cls``, or of any class."""
        if cls is None:
            cls = self._random.choice(self._classes)
        # Most fields of most messages are valid, or the decoder would refuse every message.
        wild = self._random.choice((0.0, 0.1, 0.5))
        values = [self.value(hint, wild) for hint in self._hints[cls].values()]
        message: Message = cls(*values)
        if cls is RequestIdentification and self._random.random() < 0.7:
            message = replace(message, name="test")
        return message

    def value(self, hint: Any, wild: float = 0.0) -> Any:
        """Return a value of an annotation. ``wild``: probability that an integer is out of its range,
        or a float is not a number."""
        random = self._random
        origin, args = get_origin(hint), get_args(hint)
        if origin is Annotated:
            if args[0] is int:
                return self._integer(args[1], wild)
            if args[0] is float:
                number = random.choice(FLOATS)
                return number if random.random() < wild or abs(number) <= 1e308 else 0.0
            length = args[1].min_length
            return random.choice(IDS if length == 8 else (bytes(length), b"\xff" * length))
        if origin in (Union, UnionType):
            (inner,) = (arg for arg in args if arg is not NoneType)
            return None if random.random() < 0.4 else self.value(inner, wild)
        if origin is list:
            count = random.choice((0, 0, 1, 2) if args[0] is Any else (0, 0, 1, 2, 3, 200))
            if count > 3:
                return [self.value(args[0], wild)] * count
            return [self.value(args[0], wild) for _ in range(count)]
        if origin is tuple:
            return tuple(self.value(arg, wild) for arg in args)
        if origin is dict:
            if args[0] is str:
                return {random.choice(KEYS): self.value(args[1], wild) for _ in range(3)}
            count = random.choice((0, 1, 2, 5))
            return {self.value(args[0], wild): self.value(args[1], wild) for _ in range(count)}
        if hint in EXTENSION_TYPES:
            return random.choice(list(hint))
        return self._plain(hint, wild)

    def _plain(self, hint: Any, wild: float) -> Any:
        random = self._random
        if hint is Any:
            hint = random.choice(_FREE)
            if hint is int:
                return random.choice(INTEGERS)
            return self.value(hint, wild)
        choices = {bool: (False, True), str: TEXTS[:8] + TEXTS[9:], bytes: BYTES, NoneType: (None,)}
        return random.choice(choices[hint])

    def _integer(self, within: Meta, wild: float) -> int:
        assert isinstance(within.ge, int)
        least, greatest = within.ge, int(2**64 - 1 if within.le is None else within.le)
        random = self._random
        if random.random() < wild:
            return random.choice(INTEGERS)
        if least <= 0 and random.random() < 0.5:
            return random.choice((0, 1))  # partitions, nodes
        inside = [number for number in (*INTEGERS, least, greatest) if least <= number <= greatest]
        return random.choice(inside)
