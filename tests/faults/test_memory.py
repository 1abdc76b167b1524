"""The greatest memory of a process is the formula of docs/sizing.md, also under attacks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from random import Random

import pytest
import transaction
from persistent import Persistent

from neo.client.read.replicas import WINDOW_BYTES
from neo.node.backlog import GUESTS_BYTES, PEER_BYTES, TURN_BYTES
from neo.protocol.codec import LIMIT_GUEST, encode
from neo.protocol.enums import NodeType
from neo.protocol.packets import (
    AcceptIdentification,
    AnswerObject,
    AskObject,
    Error,
    Message,
    Ping,
    Pong,
    RequestIdentification,
)
from tests.faults.bad_peers import NAME, Patient
from tests.support.memory import Process
from tests.support.patience import PATIENCE_SECONDS

MB = 1 << 20
OBJECT_BYTES = 5_000_000
#: Memory that the formula omits: allocators, logs, connections.
SLACK_BYTES = 24 * MB
#: Copies of an object in memory, which is read, packed and written.
COPIES = 3
ATTACKERS = 6
LOADS = 100


class Big(Persistent):
    """An object that cannot be compressed."""

    def __init__(self, size: int) -> None:
        self.data = Random(size).randbytes(size)


@pytest.fixture(scope="module")
def patient() -> Iterator[Patient]:
    with Patient(storages=1, partitions=1) as patient:
        yield patient


def pid(patient: Patient, role: str) -> int:
    name = next(name for name in patient.cluster.processes if name.startswith(role))
    return patient.cluster.processes[name].pid


def put(patient: Patient, name: str, count: int, size: int) -> list[bytes]:
    """Store large objects. Return their oids."""
    with transaction.manager, patient.db.transaction() as connection:
        bigs = [Big(size) for _ in range(count)]
        connection.root()[name] = bigs
        for big in bigs:
            connection.add(big)
        oids = [big._p_oid for big in bigs]
    return oids


def object_size(message: Message) -> int:
    assert isinstance(message, AnswerObject)
    return len(message.data)


def test_loads_whose_answers_are_not_read(patient: Patient) -> None:
    """Some clients send 100 loads of 5 MB each in one write. Without flow control that takes 3 GB."""
    (oid,) = put(patient, "big", 1, OBJECT_BYTES)
    process = Process(pid(patient, "storage"))
    packet = encode(0, AskObject(oid, None, b"\x7f" + b"\xff" * 7))
    with ExitStack() as stack:
        attackers = []
        for _ in range(ATTACKERS):
            master, request = patient.client_of_master()
            stack.enter_context(master)
            attackers.append(stack.enter_context(patient.connect("storage")))
            assert isinstance(attackers[-1].ask(request), AcceptIdentification)
        for attacker in attackers:
            attacker.send(packet * LOADS)
        patient.check()
        for attacker in attackers:
            assert object_size(attacker.receive().message) > OBJECT_BYTES
        patient.check()
        # Other clients are served meanwhile: very few of the loads have been executed.
        each = PEER_BYTES + TURN_BYTES + 2 * OBJECT_BYTES
        assert process.above() < ATTACKERS * each + COPIES * OBJECT_BYTES + SLACK_BYTES
        # In the end all loads are answered, in order.
        for _ in range(LOADS - 1):
            assert object_size(attackers[0].receive().message) > OBJECT_BYTES
        assert attackers[0].ask(Ping()) == Pong()


@pytest.mark.parametrize("role", ["storage", "master"])
def test_strangers_that_announce_long_messages(patient: Patient, role: str) -> None:
    guest = RequestIdentification(NodeType.STORAGE, None, None, NAME, None, {})
    process = Process(pid(patient, role))
    with ExitStack() as stack:
        for _ in range(4):
            liar = stack.enter_context(patient.connect(role))
            assert isinstance(liar.ask(guest), AcceptIdentification)
            liar.send(b"\x93\x00\x1e\x95\xc6" + (512 * MB - 100).to_bytes(4, "big"))
            error = liar.rest()[-1]
            assert isinstance(error, Error)
            assert f"message of more than {LIMIT_GUEST} bytes" in error.message
        patient.check()
        # Each sends as much as a guest may, and there are more peers than may do so at a time.
        head = b"\x93\x00\x1e\x95\xc6" + (LIMIT_GUEST - 100).to_bytes(4, "big")
        for _ in range(GUESTS_BYTES // LIMIT_GUEST + 4):
            guest_ = stack.enter_context(patient.connect(role))
            assert isinstance(guest_.ask(guest), AcceptIdentification)
            try:
                guest_.send(head + bytes(LIMIT_GUEST - 200))
            except OSError:
                pass  # this peer is one of those that are disconnected
        patient.check()
    patient.logged(role, "no room for another message of this size")
    assert process.above() < COPIES * GUESTS_BYTES + SLACK_BYTES
    patient.check()


PREFETCH = """
import os
import sys
from neo.client import Storage
from tests.support.memory import Process
masters, name, *oids = sys.argv[1:]
storage = Storage(masters, name, cache_size=10 << 20)
storage.load(bytes(8))
process = Process(os.getpid())
storage.prefetch([bytes.fromhex(oid) for oid in oids], b"\\x7f" + b"\\xff" * 7)
print(process.above())
storage.close()
"""


def test_a_prefetch_of_many_large_objects(patient: Patient) -> None:
    size, count = 6_000_000, 24
    oids = put(patient, "many", count, size)
    command = [sys.executable, "-c", PREFETCH, patient.cluster.masters, NAME, *map(bytes.hex, oids)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True)
    most = 10 * MB + WINDOW_BYTES + COPIES * size + SLACK_BYTES
    assert most < count * size // 2
    assert int(done.stdout) < most
