"""Trace messages: the story of a replayed run shows every message.

Tracing changes nothing in the world: it adds lines to the story, not to the digest, and takes no random
number and no virtual time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from msgspec.structs import asdict

from neo.net.connection import HANDSHAKE
from neo.protocol.codec import Decoder
from neo.protocol.errors import PeerError
from neo.protocol.packets import Message
from tests.simulator.network import End
from tests.simulator.planting import plant
from tests.simulator.world import World

#: More than the length of the longest message of a simulated client.
LIMIT_BYTES = 1 << 26
#: Greatest length of a value in a line. Longer values are data.
VALUE_LENGTH = 40


@contextmanager
def traced(world: World) -> Iterator[None]:
    """Inside the block, add each message to the story when it is sent."""
    decoders: WeakKeyDictionary[End, Decoder] = WeakKeyDictionary()
    write = End.write

    def traced_write(self: End, data: bytes) -> None:
        if not self.closed and data:
            decoder = decoders.get(self)
            messages = data
            if decoder is None:
                decoder = decoders[self] = Decoder(LIMIT_BYTES)
                messages = data.removeprefix(HANDSHAKE)
            for line in _messages(decoder, messages):
                where = f"{world.now:10.4f} {self.host:<10}"
                world.story.append(f"{where} -> {self.other.host}: {line}")
        write(self, data)

    with plant([(End, "write", traced_write)]):
        yield


def _messages(decoder: Decoder, data: bytes) -> Iterator[str]:
    try:
        decoder.feed(data)
        for packet in iter(decoder.take, None):
            yield describe(packet.message)
    except PeerError as e:
        yield f"what cannot be decoded: {e}"


def describe(message: Message) -> str:
    """Return one line: ``AskObject(oid=…05, at=None, before=…)``. Long values are cut."""
    fields = asdict(message)
    return f"{type(message).__name__}({', '.join(f'{k}={_value(v)}' for k, v in fields.items())})"


def _value(value: object) -> str:
    if isinstance(value, bytes):
        return value.hex() if len(value) <= 8 else f"<{len(value)} bytes>"
    if isinstance(value, (list, tuple)):
        text = f"[{', '.join(map(_value, value[:6]))}{', …' if len(value) > 6 else ''}]"
    elif isinstance(value, dict):
        text = "{" + ", ".join(f"{_value(k)}: {_value(v)}" for k, v in value.items()) + "}"
    else:
        text = getattr(value, "name", None) or repr(value)
    return text if len(text) <= 4 * VALUE_LENGTH else text[: 4 * VALUE_LENGTH] + "…"
