"""The recorded wire: bytes and tables of the reference implementation of protocol version 1.

``golden.json`` has every message with its argument names and types (``?T``: T or nil, ``[T]``: array,
``(a:T, b:U)``: array of fixed size, ``{K:V}``: map, ``p64``: 8 bytes) and real examples of the request
and of its answer. ``captured.jsonl`` has one packet of each shape found in 21,003 recorded ones; those
of a raw peer that the protocol refuses have the reason as ``error``, those with another spelling of
the same message a ``note``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
GOLDEN: dict[str, Any] = json.loads((HERE / "golden.json").read_text())
CAPTURED: list[dict[str, Any]] = [
    json.loads(line) for line in (HERE / "captured.jsonl").read_text().splitlines()
]

HANDSHAKE = bytes.fromhex(GOLDEN["handshake"])


def examples() -> list[tuple[str, bytes]]:
    """(name of a request or notification, or of what it answers, packet)"""
    return [
        (entry["name"], bytes.fromhex(hexadecimal))
        for entry in GOLDEN["messages"]
        for hexadecimal in entry["hex"] + entry["answer_hex"]
    ]


def good_packets() -> list[bytes]:
    """Every packet that is encoded as we encode it, each once."""
    captured = [
        bytes.fromhex(row["hex"]) for row in CAPTURED if "error" not in row and "note" not in row
    ]
    return list(dict.fromkeys([packet for _, packet in examples()] + captured))
