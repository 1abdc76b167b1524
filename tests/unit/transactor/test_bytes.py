"""The bytes of messages, files and packets: other programs, and later versions, read them."""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from pathlib import Path

import msgpack
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from neo.transactor import messages
from neo.transactor.codec import messages as codec
from neo.transactor.durable import Begun
from neo.transactor.frames import frame, scan
from neo.transactor.members import Members, first_members
from neo.transactor.messages import (
    MESSAGES,
    RECORDS,
    Ack,
    Entry,
    Estimate,
    Held,
    Kind,
    Known,
    Sid,
    Spec,
    Vote,
    Voter,
)
from neo.transactor.sealing import Keys, Packet, parse, relayed, tag
from neo.transactor.store import Store
from tests.unit.transactor.internet import Internet

GENESIS = first_members([("a", ("host", 1)), ("b", ("host", 2))])
LIST = [2, [[0, "a", ["host", 1]], [1, "b", ["host", 2]]]]


def test_messages_have_their_codes_and_fields() -> None:
    """Specification 20.21, 20.22."""
    assert [kind.__name__ for kind in MESSAGES] == [
        *("Collect", "Estimate", "Propose", "Ack", "Nack", "Decide", "Wish"),
        *("Data", "Want", "Ask", "Entries", "Status", "Census", "Counted"),
    ]
    assert [kind._fields for kind in MESSAGES] == [
        *(("tid", "round"), ("tid", "round", "sid", "stamp"), ("tid", "round", "sid")),
        *(("tid", "round"), ("tid", "round"), ("tid", "sid"), ("tid", "round", "sid")),
        *(("spec",), ("sid",), ("tid",), ("tid", "specs", "genesis", "next_tid")),
        *(("tid", "log", "recovered", "learner"), ("log",), ("log", "tid", "round")),
    ]
    assert codec.encode(Ack(5, 1)) == msgpack.packb([3, 5, 1])
    assert codec.encode(Estimate(5, 1, None, -1)) == msgpack.packb([1, 5, 1, None, -1])
    spec = Spec(Sid(3, (1 << 64) - 1), 0, b"x")
    assert codec.encode(messages.Data(spec)) == msgpack.packb([7, [[3, (1 << 64) - 1], 0, b"x"]])


def test_kinds_of_specifications_have_their_numbers() -> None:
    """Specification 20.4."""
    assert (Kind.DATA, Kind.MEMBERS, Kind.NOTHING) == (0, 1, 2)


def test_a_list_of_members_has_its_form() -> None:
    """Specification 20.16, 20.22."""
    assert GENESIS.encode() == msgpack.packb(LIST)
    assert Members.decode(msgpack.packb(LIST)) == GENESIS


def test_frames_have_their_form() -> None:
    """Specification 20.25."""
    length = struct.pack(">I", 1 << 31 | 4)
    content = b"abc\xa5"
    expected = length + struct.pack(">II", zlib.crc32(length), zlib.crc32(content)) + content
    assert frame(b"abc") == expected


def test_the_logs_have_their_files_and_frames(tmp_path: Path) -> None:
    """Specification 20.27, 20.28."""
    tlog, mlog = tmp_path / "tlog", tmp_path / "mlog"
    tlog.mkdir()
    mlog.touch()
    store = Store(str(tlog), str(mlog), "a", GENESIS, 77, lambda text: None, Begun.FRESH)
    specs = [Spec(Sid(0, (77 << 32) + n), 0, b"%d" % n) for n in range(102)]
    for tid in range(1, 102):
        store.append([Entry(tid, specs[tid])])
    sid = specs[101].sid
    store.append([Vote(102, 3, sid, 2), Held(specs[101]), Known(1, 99), Voter(102)])
    store.close()
    assert sorted(os.listdir(tlog / "00000000")) == ["000000000001.seg", "000000000101.seg"]
    head, *entries = scan((tlog / "00000000" / "000000000101.seg").read_bytes()).frames
    members = GENESIS.encode()
    assert msgpack.unpackb(head) == [1, 101, [*specs[100].sid], members, members, [0, 1]]
    assert [*map(msgpack.unpackb, entries)] == [[4, 101, [[*sid], 0, b"101"]]]
    head, *records = scan(mlog.read_bytes()).frames
    assert msgpack.unpackb(head) == ["transactor mlog", 1, "a", 77, 0, 77 << 32, 1]
    assert [*map(msgpack.unpackb, records)] == [
        *([0, 102, 3, [*sid], 2], [1, [[*sid], 0, b"101"]], [2, 1, 99], [3, 102]),
    ]
    assert [kind.__name__ for kind in RECORDS] == ["Vote", "Held", "Known", "Voter", "Entry"]
    assert (Begun.FRESH, Begun.JOINED, Begun.RECOVERED) == (0, 1, 2)


def hkdf(key: bytes, salt: bytes, info: bytes) -> bytes:
    return HKDF(SHA256(), 32, salt, info).derive(key)


def test_packets_are_sealed_as_specified() -> None:
    """Specification 20.30 to 20.33."""
    a, b = (hashlib.sha256(name).digest()[:8] for name in (b"a", b"b"))
    assert (tag("a"), tag("b")) == (a, b)
    keys = Keys("secret", lambda size: b"n" * size)
    master = hkdf(b"secret", b"neo.transactor", b"master")
    head = b"T1\x01\x00" + b + a
    greeting = AESGCM(hkdf(master, b"", b"greetings")).encrypt(b"n" * 12, b"hello", head)
    assert keys.seal_greeting(b, a, b"hello") == head + b"n" * 12 + greeting
    out = keys.session(a, b, b"2" * 16, b"1" * 16)
    session = AESGCM(hkdf(master, b"1" * 16 + b"2" * 16, b"from" + a + b))
    head = b"T1\x02\x00" + b + a
    for number in (1, 2):
        counter = struct.pack(">Q", number)
        sealed = head + counter + session.encrypt(bytes(4) + counter, b"body", head)
        assert out.seal(b"body") == sealed
    back = keys.session(b, a, b"1" * 16, b"2" * 16)
    assert back.open(parse(relayed(sealed))) == b"body", "the number of relays is not sealed in"


def test_bodies_of_packets_have_their_kinds() -> None:
    """Specification 20.32, 20.34."""
    net = Internet("a", "b")
    bodies: list[bytes] = []
    b = net["b"].links.links["a"]
    original = b.open

    def opened(packet: Packet) -> bytes:
        bodies.append(original(packet))
        return bodies[-1]

    b.open = opened  # type: ignore[method-assign]
    net.run()
    net["a"].send("b", messages.Ask(9))
    net.drain()
    assert {body[0] for body in bodies} == {0, 1, 2, 3}
    assert bodies[-1] == b"\0" + msgpack.packb([codec.encode(messages.Ask(9))])
    probed = [msgpack.unpackb(body[1:]) for body in bodies if body[0] == 2]
    assert set(probed) == {508, 1232, 1400, 1472, 8972}
    assert b"\3" + msgpack.packb(["b"]) in bodies
