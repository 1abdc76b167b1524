"""Debug flags (specification 20.51), and the destination of debug messages."""

from __future__ import annotations

import re
from collections.abc import Callable

#: In the order of their bits; the first is bit 0.
NAMES = (
    *("se_tasks", "se_requests", "se_connections"),
    *("ta_state", "ta_arrivals", "ta_posts", "ta_moreposts", "ta_acks", "ta_trns"),
    *("ta_part", "ta_coord", "ta_trntime"),
    *("select", "peerdi", "msg_arrived", "queueing", "msg_ackobs", "msg_payload", "slot"),
    *("connectivity", "peer_index"),
    *("pl_connection", "pl_queueing", "pl_sendreceive", "pl_readwrite", "pl_status"),
    *("pl_listeninfo", "pl_nosupperrors", "pl_packets"),
)
#: Flags without output: the event loop is a library's, messages have no slots, and the last one has no
#: meaning.
WITHOUT_OUTPUT = ("select", "slot", "pl_nosupperrors")
FLAGS = {name: 1 << bit for bit, name in enumerate(NAMES)}
ALL = (1 << len(NAMES)) - 1
#: Shown by --nodetach if no mask is given.
FOREGROUND = FLAGS["se_connections"] | FLAGS["ta_trns"] | FLAGS["connectivity"]


def parse_mask(text: str) -> int:
    """Parse a mask: hexadecimal after 0x, octal after 0, else decimal. Raises ValueError."""
    match = re.fullmatch(r"0[xX]([0-9a-fA-F]+)|(0[0-7]*)|([1-9][0-9]*)", text)
    value = 1 << 32
    if match is not None:
        value = int(match[match.lastindex or 0], (16, 8, 10)[(match.lastindex or 1) - 1])
    if value >= 1 << 32:
        raise ValueError(f"{text} is not a number of 32 bits")
    return value


def names_of(mask: int) -> str:
    return " ".join(name for name, bit in FLAGS.items() if mask & bit) or "none"


class Debug:
    """The mask of flags. ``write`` takes one line; None while debugging is off."""

    def __init__(self, mask: int = 0) -> None:
        self.mask = mask
        self.write: Callable[[str], None] | None = None

    def shows(self, flag: str) -> bool:
        return self.write is not None and bool(self.mask & FLAGS[flag])

    def __call__(self, flag: str, text: str) -> None:
        if self.write is not None and self.mask & FLAGS[flag]:
            self.write(f"{flag}: {text}")
