"""Bad peers, with real processes: each gets a clear error, and no other peer is affected."""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha1
from typing import Any

import pytest
from msgspec.structs import replace

from neo.net.connection import HANDSHAKE
from neo.net.sockets import format_address
from neo.protocol.codec import encode
from neo.protocol.enums import ErrorCode, NodeType
from neo.protocol.ids import MAX_TID, ZERO_HASH
from neo.protocol.packets import (
    AnswerNewOIDs,
    AnswerStoreObject,
    AskBeginTransaction,
    AskClusterState,
    AskFinishTransaction,
    AskNewOIDs,
    AskObject,
    AskObjectHistory,
    AskObjectUndoSerial,
    AskOIDs,
    AskStoreObject,
    AskTIDs,
    AskTIDsFrom,
    AskTransactionInformation,
    AskVoteTransaction,
    Error,
    Message,
    NotifyReady,
    Ping,
    Pong,
    Request,
    RequestIdentification,
)
from neoctl.__main__ import main as neoctl
from tests.faults.bad_peers import NAME, ROLES, Patient
from tests.support.raw import RawPeer

#: The oid of no object of the well-behaved client.
OID = bytes(7) + b"\x54"
LAST_OID = b"\xff" * 7 + b"\xfc"
ZERO = bytes(8)
REQUEST = encode(0, RequestIdentification(NodeType.CLIENT, None, None, NAME, None, {}))
GIGABYTE = b"\x93\x00\x1c\x97\xc6\x40\x00\x00\x00"


@pytest.fixture(scope="module")
def running() -> Iterator[Patient]:
    with Patient(storages=1) as patient:
        yield patient


@pytest.fixture
def patient(running: Patient) -> Iterator[Patient]:
    running.check()
    running.mark()
    yield running
    running.check()


# -- strangers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\nHost: neo\r\n\r\n", "is not a NEO node, it began with b'GET / '"),
        (bytes(range(256)) * 100, r"is not a NEO node, it began with b'\x00\x01\x02\x03\x04\x05'"),
        (b"\x92\xa3NEO\x02", "the peer speaks version 2, this node 1"),
        (b"\x16\x03\x01\x00\xf0\x01", "the peer uses TLS and this node does not"),
    ],
    ids=["http", "garbage", "version", "tls"],
)
def test_who_does_not_speak_neo_is_sent_away(
    patient: Patient, role: str, data: bytes, reason: str
) -> None:
    with RawPeer(patient.address(role)) as peer:
        peer.send(data)
        assert HANDSHAKE.startswith(peer.read_until_closed())
    patient.logged(role, reason)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (GIGABYTE, "1073741824 bytes are announced"),
        (b"\x93\x00\x01\xdd\xff\xff\xff\xff", "malformed message: 4294967295 exceeds"),
        (b"\x91" * 5000, "malformed message: nested too deeply"),
        (b"\xc1", "malformed message"),
        (b"\x93\x00\xcd\x12\x34\x90", "unknown message code 0x1234"),
        (b"\x93\x00\x01\x91\xc0", "RequestIdentification: 6 arguments expected, got 1"),
        (b"\x93\x00\x02\x91\xc0", "Ping: 0 arguments expected, got 1"),
        (REQUEST.replace(b"\xc4\x03lab", b"\x07"), "wrong argument: name: expected str, got 7"),
        (REQUEST[:-1] + b"\xc0", "RequestIdentification: wrong argument: extra: expected map, got None"),
        (encode(0, Pong()), "Pong answers no request of this node"),
        (encode(0, AskVoteTransaction(ZERO)), "unexpected AskVoteTransaction"),
        (encode(0, NotifyReady()), "unexpected NotifyReady"),
    ],
    ids=["gigabyte", "bomb", "nesting", "byte", "code", "arguments", "ping", "type", "nil",
         "answer", "request", "notification"],
)  # fmt: skip
def test_broken_messages_are_answered_and_logged(
    patient: Patient, role: str, data: bytes, reason: str
) -> None:
    with patient.connect(role) as peer:
        peer.send(data)
        (error,) = peer.rest()
        assert isinstance(error, Error)
        assert error.code == ErrorCode.PROTOCOL_ERROR.value
        assert reason in error.message
    patient.logged(role, reason)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("length", [0, 3, 6, 7, 20])
def test_truncated_messages(patient: Patient, role: str, length: int) -> None:
    request = RequestIdentification(NodeType.CLIENT, None, None, NAME, None, {})
    with RawPeer(patient.address(role)) as peer:
        peer.send((HANDSHAKE + encode(0, request))[:length])
        peer.end_of_stream()
        assert peer.read_until_closed() == HANDSHAKE
    patient.logged(role, "ended: closed by the peer")


@pytest.mark.parametrize("role", ["master", "storage"])
def test_another_cluster(patient: Patient, role: str) -> None:
    with patient.connect(role) as peer:
        peer.say(RequestIdentification(NodeType.CLIENT, None, None, "other", None, {}))
        text = f"invalid cluster name: this is '{NAME}', you asked for 'other'"
        assert peer.rest() == [Error(ErrorCode.PROTOCOL_ERROR.value, text)]
    patient.logged(role, text)


@pytest.mark.parametrize(
    ("node_type", "reason"),
    [
        (NodeType.CLIENT, "an admin node is no place for a client"),
        (NodeType.STORAGE, "an admin node is no place for a storage"),
        (NodeType.ADMIN, "this admin node does not watch over a standby cluster 'lab'"),
    ],
)
def test_an_admin_identifies_only_admins_of_backups(
    patient: Patient, node_type: NodeType, reason: str
) -> None:
    with patient.connect("admin") as peer:
        peer.say(RequestIdentification(node_type, None, None, NAME, None, {}))
        assert peer.rest() == [Error(ErrorCode.PROTOCOL_ERROR.value, reason)]
    patient.logged("admin", reason)


def test_a_client_that_the_master_does_not_know(patient: Patient) -> None:
    master, request = patient.client_of_master()
    with master, patient.connect("storage") as peer:
        peer.say(replace(request, id_timestamp=1.0))
        assert peer.rest() == [Error(ErrorCode.NOT_READY.value, "unknown by master")]
    patient.logged("storage", "unknown by master")
    with patient.connect("storage") as peer:
        peer.say(RequestIdentification(NodeType.CLIENT, None, None, NAME, None, {}))
        (error,) = peer.rest()
        assert isinstance(error, Error)
        assert "a storage node serves identified clients" in error.message


# -- two nodes that are one ------------------------------------------------------------------------


def storage_request(patient: Patient, nid: int | None, role: str | None) -> RequestIdentification:
    address = ("127.0.0.1", 9) if role is None else patient.address(role)
    return RequestIdentification(NodeType.STORAGE, nid, address, NAME, None, {})


@pytest.mark.parametrize(
    ("nid", "role", "reason"),
    [
        (1, None, "already connected: S1 at 127.0.0.1:"),
        (None, "storage", "already connected: S1 at 127.0.0.1:"),
        (1, "storage", "already connected: S1 at 127.0.0.1:"),
        (7, "storage", "already connected: S1 at 127.0.0.1:"),
        (None, "master", "address conflict: 127.0.0.1:"),
    ],
    ids=["nid", "address", "both", "address-of-another", "address-of-the-master"],
)
def test_duplicates(patient: Patient, nid: int | None, role: str | None, reason: str) -> None:
    with patient.connect("master") as peer:
        peer.say(storage_request(patient, nid, role))
        (error,) = peer.rest()
        assert isinstance(error, Error)
        assert error.code == ErrorCode.PROTOCOL_ERROR.value
        assert error.message.startswith(reason)
    # The same message about the same node is logged only once a minute.
    patient.logged("master", reason, ever=True)


# -- clients that misbehave ------------------------------------------------------------------------


class BadClient:
    """A client that the master and a storage node have accepted."""

    def __init__(self, patient: Patient) -> None:
        self.master, self.request = patient.client_of_master()
        self.storage = patient.client_of_storage(self.request)

    def close(self) -> None:
        self.master.__exit__()
        self.storage.__exit__()


@pytest.fixture
def bad(patient: Patient) -> Iterator[BadClient]:
    client = BadClient(patient)
    yield client
    client.close()


def store(ttid: bytes, data: bytes, checksum: bytes, compression: int = 0) -> AskStoreObject:
    return AskStoreObject(OID, ZERO, compression, checksum, data, None, ttid)


def test_data_that_does_not_match_its_checksum(patient: Patient, bad: BadClient) -> None:
    ttid = bad.master.ask(AskBeginTransaction(None)).ttid
    answer = bad.storage.ask(store(ttid, b"data", sha1(b"date").digest()))
    assert isinstance(answer, Error)
    assert answer.code == ErrorCode.PROTOCOL_ERROR.value
    assert f"the data of object {OID.hex()} does not match its checksum" in answer.message
    patient.logged("storage", "does not match its checksum")
    # The store may be sent again with correct data.
    answer = bad.storage.ask(store(ttid, b"data", sha1(b"data").digest()))
    assert answer == AnswerStoreObject(None)


def test_unknown_compression(bad: BadClient) -> None:
    ttid = bad.master.ask(AskBeginTransaction(None)).ttid
    answer = bad.storage.ask(store(ttid, b"data", sha1(b"data").digest(), compression=2))
    assert isinstance(answer, Error)
    assert "compression 2 is unknown: 0 or 1 expected" in answer.message


@pytest.mark.parametrize(
    "question",
    [
        AskTIDs(5, 2, 0),
        AskTIDs(0, 2**63 - 1, 0),
        AskTIDsFrom(ZERO, MAX_TID, 10, 1_000_000),
        AskObjectHistory(OID, 3, 3),
        AskObjectHistory(OID, 0, 2**63 - 1),
        AskObject(LAST_OID, None, None),
        AskObject(LAST_OID, LAST_OID, LAST_OID),
        AskObject(OID, LAST_OID, None),
        AskObjectUndoSerial(LAST_OID, LAST_OID, LAST_OID, [LAST_OID]),
        AskTransactionInformation(LAST_OID),
        AskTIDsFrom(LAST_OID, LAST_OID, 10, 0),
        AskOIDs(0, LAST_OID, 10),
        AskVoteTransaction(ZERO),
        AskStoreObject(LAST_OID, LAST_OID, 0, ZERO_HASH, b"", LAST_OID, LAST_OID),
    ],
    ids=repr,
)
def test_questions_of_no_sense_hurt_nobody(bad: BadClient, question: Request[Any]) -> None:
    """Such questions are answered, mostly with an Error, and the connection goes on."""
    bad.storage.ask(question)
    assert bad.storage.ask(Ping()) == Pong()


@pytest.mark.parametrize(
    "question",
    [
        AskTIDs(-1, 2, 0),
        AskTIDs(0, 2**63, 0),
        AskTIDsFrom(ZERO, MAX_TID, 10, -1),
        AskObjectHistory(OID, 0, 2**63),
    ],
    ids=repr,
)
def test_numbers_out_of_their_range_end_the_connection(bad: BadClient, question: Message) -> None:
    bad.storage.say(question)
    error = bad.storage.rest()[-1]
    assert isinstance(error, Error)
    assert error.message.startswith(f"{type(question).__name__}: wrong argument: ")
    assert re.search("expected int [<>]= ", error.message)


@pytest.mark.parametrize("count", [0, 2**31])
def test_impossible_numbers_of_oids(bad: BadClient, count: int) -> None:
    answer = bad.master.ask(AskNewOIDs(count))
    assert isinstance(answer, Error)
    assert f"{count} oids asked" in answer.message
    assert isinstance(bad.master.ask(AskNewOIDs(1)), AnswerNewOIDs)


@pytest.mark.parametrize("ttid", [ZERO, b"\xff" * 8])
def test_finishing_an_unknown_transaction(bad: BadClient, ttid: bytes) -> None:
    answer = bad.master.ask(AskFinishTransaction(ttid, [], []))
    assert isinstance(answer, Error)
    assert f"unknown transaction {ttid.hex()}" in answer.message


@pytest.fixture
def fresh() -> Iterator[Patient]:
    """Yield a separate cluster, for tests that break it for good."""
    with Patient(storages=1) as patient:
        yield patient
        patient.check()


@pytest.mark.parametrize("tid", [b"\xff" * 8, MAX_TID])
def test_a_tid_of_the_end_of_time_does_not_use_up_all_tids(fresh: Patient, tid: bytes) -> None:
    """Specification 7.5."""
    bad = BadClient(fresh)
    answer = bad.master.ask(AskBeginTransaction(tid))
    assert isinstance(answer, Error)
    bad.close()


@pytest.mark.parametrize("oid", [b"\xff" * 8, LAST_OID])
def test_the_last_oid_does_not_use_up_all_oids(fresh: Patient, oid: bytes) -> None:
    """Specification 7.27."""
    bad = BadClient(fresh)
    ttid = bad.master.ask(AskBeginTransaction(None)).ttid
    answer = bad.master.ask(AskFinishTransaction(ttid, [oid], []))
    assert isinstance(answer, Error)
    assert isinstance(bad.master.ask(AskNewOIDs(100)), AnswerNewOIDs)
    bad.close()


def test_a_gigabyte_announced_by_an_identified_client(patient: Patient, bad: BadClient) -> None:
    # The master tells the storage node that the client is dropped, so the storage node comes first.
    for role, peer in (("storage", bad.storage), ("master", bad.master)):
        peer.send(GIGABYTE)
        error = peer.rest()[-1]
        assert isinstance(error, Error)
        assert "1073741824 bytes are announced" in error.message
        patient.logged(role, "broke the protocol: message of more than 536870912 bytes")


def test_a_client_that_dies_in_the_middle_of_its_messages(patient: Patient) -> None:
    client = BadClient(patient)
    ttid = client.master.ask(AskBeginTransaction(None)).ttid
    client.storage.send(encode(1, store(ttid, bytes(100_000), sha1(bytes(100_000)).digest()))[:50_000])
    client.close()
    patient.logged("master", f"transaction {ttid.hex()} is dropped with its client")


def test_many_strangers_at_once(patient: Patient) -> None:
    peers = [patient.connect(role) for role in ROLES for _ in range(50)]
    patient.check()
    assert peers[0].ask(Ping()) == Pong()
    with patient.cluster.admin() as admin:
        assert admin.ask(AskClusterState()).state is not None
    for peer in peers:
        peer.__exit__()


def test_an_accepted_client_is_a_client(bad: BadClient) -> None:
    """The helpers of these tests identify themselves correctly."""
    assert bad.master.ask(Ping()) == Pong()
    assert bad.storage.ask(Ping()) == Pong()


# -- operators -------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["master", "storage"])
@pytest.mark.parametrize("words", ["print cluster", "status", "kill S1", "flush_log", "tweak -n"])
def test_neoctl_at_the_port_of_another_role_says_where_to_go(
    patient: Patient, capsys: pytest.CaptureFixture[str], role: str, words: str
) -> None:
    address = format_address(patient.address(role))
    assert neoctl(["-a", address, *words.split()]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"neoctl: {address} is a NEO node, but not an admin node of this version")
    assert err.endswith("give the address of neoadmin with --address\n")
    assert err.count("\n") == 1
