"""The door to :mod:`neo.embedded`, which is built of nodes and of this client."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from neo.client.storage import NEOStorage


def open_folder(path: str | os.PathLike[str], **options: Any) -> NEOStorage:
    """Return a storage on the database in a folder, which runs inside this process. ``options``: those
    of NEOStorage that do not concern connections. Raise the errors of :func:`neo.embedded.open`."""
    # By its name: a client of a cluster must not need the nodes, and imports go down only.
    storage: NEOStorage = import_module("neo.embedded").open(path, **options)
    return storage
