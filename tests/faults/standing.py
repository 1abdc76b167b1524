"""A client that waits between vote and finish: ``python -m tests.faults.standing MASTERS NAME``.

Prints one line for each step: ``voted OID SERIAL TTID``, then, when it got a line, ``ended`` with the
error of tpc_finish or the tid, then ``again`` with the tid of another commit by the same connections.
"""

from __future__ import annotations

import sys
from typing import Any

from ZODB.Connection import TransactionMetaData
from ZODB.POSException import POSError
from ZODB.utils import z64

from neo.client import Storage


def _begin(storage: Any, oid: bytes, serial: bytes) -> TransactionMetaData:
    """Return a transaction that has voted."""
    transaction = TransactionMetaData()
    storage.tpc_begin(transaction)
    storage.store(oid, serial, b"data", "", transaction)
    storage.tpc_vote(transaction)
    return transaction


def main(masters: str, name: str) -> None:
    storage = Storage(masters, name)
    oid = storage.new_oid()
    serial = storage.tpc_finish(_begin(storage, oid, z64))
    standing = _begin(storage, oid, serial)
    ttid = storage._transactions[id(standing)].ttid
    print("voted", oid.hex(), serial.hex(), ttid.hex(), flush=True)
    sys.stdin.readline()
    try:
        ended = storage.tpc_finish(standing).hex()
    except POSError as e:
        ended = f"{type(e).__name__} {e}"
    print("ended", ended, flush=True)
    again = storage.tpc_finish(_begin(storage, storage.new_oid(), z64))
    print("again", again.hex(), flush=True)
    storage.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
