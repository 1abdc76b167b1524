"""A process that loads objects through a kept cache, until it is killed.

``python -m tests.faults.cached_reader URI FOLDER SAVE_SECONDS`` prints, as JSON, the values of all objects
and how many loads the cluster was asked for; then it counts in an object of its own, again and again, and
prints each value that was acknowledged. With SAVE_SECONDS 0 it closes the storage instead.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import transaction
import ZODB

from neo.client.uri import resolve
from neo.client.warm import keeper
from neo.protocol.packets import AskObject


def counted(storage: Any) -> list[int]:
    """Count the objects that a storage asks for, from now on."""
    count = [0]
    read = storage.replicas.read

    def counting(where: Any, message: Any, *others: Any) -> Any:
        count[0] += isinstance(message, AskObject)
        return read(where, message, *others)

    storage.replicas.read = counting
    return count


def main(uri: str, folder: str, seconds: float) -> None:
    keeper.SAVE_SECONDS = seconds or keeper.SAVE_SECONDS
    factory, _ = resolve(f"{uri}?cache_dir={folder}")
    storage: Any = factory()
    loads = counted(storage)
    db = ZODB.DB(storage)
    root = db.open().root()
    values = [each["n"] for each in root.get("all", ())]
    print(json.dumps([values, loads[0]]), flush=True)
    while seconds:
        root["own"] = root.get("own", 0) + 1
        transaction.commit()
        print(root["own"], flush=True)
    db.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
