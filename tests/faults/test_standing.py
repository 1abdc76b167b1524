"""A client is stopped between vote and finish: others get its name, the operator ends its
transaction."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import pytest
from ZODB.Connection import TransactionMetaData
from ZODB.POSException import ConflictError

from neo.admin import problems
from neoctl.__main__ import main
from tests.support.cluster import Cluster
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.support.standstill import stand_still


@contextmanager
def standing(cluster: Cluster) -> Iterator[tuple[subprocess.Popen[str], IO[str], IO[str]]]:
    command = [sys.executable, "-m", "tests.faults.standing"]
    with subprocess.Popen(
        [*command, cluster.simple.masters, cluster.simple.name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            yield process, process.stdin, process.stdout
        finally:
            process.kill()


def commit(cluster: Cluster, oid: bytes, serial: bytes, wait_timeout: float) -> bytes:
    """Commit with a separate client."""
    storage = cluster.storage(wait_timeout=wait_timeout)
    transaction = TransactionMetaData()
    try:
        storage.tpc_begin(transaction)
        storage.store(oid, serial, b"more", "", transaction)
        storage.tpc_vote(transaction)
        tid: bytes = storage.tpc_finish(transaction)
        return tid
    finally:
        storage.tpc_abort(transaction)
        storage.close()


def test_a_client_that_stands_still_blocks_nobody_for_ever(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(problems, "BLOCKING_SECONDS", 1.0)  # shortens the test
    with Cluster(storages=2, partitions=4) as cluster, standing(cluster) as (process, tell, said):

        def neoctl(*words: str) -> str:
            main(["-a", cluster.simple.admin_address, *words])
            return capsys.readouterr().out

        word, *ids = said.readline().split()
        assert word == "voted"
        oid, serial, ttid = map(bytes.fromhex, ids)
        stand_still(process.pid)

        # The waiting client gets its name.
        with pytest.raises(ConflictError) as raised:
            commit(cluster, oid, serial, 2.0)
        named = f"C\\d+ \\(127.0.0.1:\\d+\\) holds it with transaction 0x{ttid.hex()}, .* is voted"
        assert re.search(named, str(raised.value)) and raised.value.oid == oid
        assert "problem: " not in neoctl("status")

        # The operator sees its name, and ends the transaction.
        tids: list[bytes] = []
        waiter = threading.Thread(
            target=lambda: tids.append(commit(cluster, oid, serial, PATIENCE_SECONDS)), daemon=True
        )
        waiter.start()

        def problem() -> str:
            shown = neoctl("status")
            return shown if "problem: " in shown else ""

        shown = wait_until(problem, "the operator does not see the waiting transaction")
        assert re.search(f"1 other waits for transaction 0x{ttid.hex()} of C.*neoctl end 0x", shown)
        assert re.search(f"0x{ttid.hex()} .* voted \\| 1 \\|", neoctl("print", "transactions"))
        assert "its locks are released" in neoctl("end", f"0x{ttid.hex()}")
        waiter.join(PATIENCE_SECONDS)
        (tid,) = tids
        assert tid > serial and "problem: " not in neoctl("status")

        # When the client goes on, it gets the error, has committed nothing, and can commit again.
        process.send_signal(signal.SIGCONT)
        tell.write("go on\n")
        tell.flush()
        assert re.match(
            f"ended TransactionLostError .*{ttid.hex()} was ended by the operator", said.readline()
        )
        assert said.readline().startswith("again ")
        storage = cluster.storage()
        assert storage.load(oid) == (b"more", tid)
        storage.close()
