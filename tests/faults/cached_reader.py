"""A process that loads objects through a kept cache, until it is killed.

``python -m tests.faults.cached_reader URI FOLDER SAVE_SECONDS`` prints, as JSON, the values of all
objects and how many loads the cluster was asked for; then it counts in the root, again and again. With
SAVE_SECONDS 0 it closes the storage instead.
"""

from __future__ import annotations

import json
import sys

import transaction
import ZODB
from ZODB.POSException import ConflictError

from neo.client.uri import resolve
from neo.client.warm import keeper
from tests.support.loads import counted_loads


def main(uri: str, folder: str, seconds: float) -> None:
    if seconds:
        # Also soon after a save in which the machine stood still.
        keeper.SAVE_SECONDS, keeper.SAVE_EACH = seconds, 1
    factory, _ = resolve(f"{uri}?cache_dir={folder}")
    with counted_loads() as loads:
        db = ZODB.DB(factory())
        root = db.open().root()
        values = [each["n"] for each in root.get("all", ())]
    print(json.dumps([values, *loads]), flush=True)
    while seconds:
        root["own"] = root.get("own", 0) + 1
        try:
            transaction.commit()
        except ConflictError:
            transaction.abort()  # another process counts, too
    db.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
